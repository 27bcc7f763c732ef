// The reporter for Jest.
'use strict';
const { send, errorFields } = require('./codepilot_report.cjs');

const OUTCOMES = { passed: 'passed', failed: 'failed', pending: 'skipped', skipped: 'skipped', todo: 'skipped', disabled: 'skipped' };

module.exports = class {
  onTestCaseStart(test, info) {
    send('run', { file: test.path, names: [...(info.ancestorTitles ?? []), info.title] });
  }

  onTestResult(test, result) {
    if (result.testExecError || (result.failureMessage && !result.testResults.length)) {
      const error = result.testExecError ?? {};
      const text = error.stack || error.message ? error : result.failureMessage;
      send('broken', { file: test.path, ...errorFields(text) });
    }
    for (const one of result.testResults) {
      const error = one.failureDetails?.[0]?.message || one.failureDetails?.[0]?.stack ? one.failureDetails[0] : one.failureMessages?.[0];
      send('test', {
        file: test.path,
        names: [...one.ancestorTitles, one.title],
        outcome: OUTCOMES[one.status] ?? 'skipped',
        duration: (one.duration ?? 0) / 1000,
        ...(one.status === 'failed' ? errorFields(error) : {}),
      });
    }
  }

  onRunComplete() {
    send('end');
  }

  getLastError() {}
};
