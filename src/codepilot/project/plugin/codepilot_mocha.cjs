// The reporter for Mocha.
'use strict';
const { send, errorFields } = require('./codepilot_report.cjs');

function names(test) {
  return test.titlePath ? test.titlePath() : [test.title];
}

function end(test, outcome, error) {
  send('test', { file: test.file, names: names(test), outcome, duration: (test.duration ?? 0) / 1000, ...errorFields(error) });
}

module.exports = class {
  constructor(runner) {
    runner.on('test', (test) => send('run', { file: test.file, names: names(test) }));
    runner.on('pass', (test) => end(test, 'passed'));
    runner.on('pending', (test) => end(test, 'skipped'));
    runner.on('fail', (test, error) => end(test, test.type === 'hook' ? 'error' : 'failed', error));
    runner.once('end', () => send('end'));
  }
};
