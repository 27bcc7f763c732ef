// Where reporters write: one JSON line a fact. The variable goes at once, so that tests do not inherit it.
'use strict';
const fs = require('node:fs');

const path = process.env.CODEPILOT_REPORT;
delete process.env.CODEPILOT_REPORT;
const fd = path ? fs.openSync(path, 'a') : -1;
const LIMIT = 12000;

function clip(value) {
  const text = typeof value === 'string' ? value : String(value ?? '');
  const plain = text.replace(/\u001b\[[0-9;]*[A-Za-z]/g, '');
  return plain.length <= LIMIT ? plain : plain.slice(0, LIMIT / 3) + '\n[...]\n' + plain.slice(-(2 * LIMIT) / 3);
}

function send(event, fact = {}) {
  if (fd >= 0) fs.writeSync(fd, JSON.stringify({ event, ...fact }) + '\n');
}

// The fields of an error, which may be an Error, a plain object or a text.
function errorFields(error) {
  if (error === undefined || error === null) return {};
  const text = typeof error === 'string' ? error : (error.stack ?? error.message ?? String(error));
  const first = clip(text).split('\n', 1)[0];
  const named = /^(?:Uncaught )?([A-Z]\w*(?:Error|Exception|Failure))\b/.exec(first);
  const kind = (typeof error === 'object' && error.name) || (named && named[1]) || 'Error';
  const message = String((typeof error === 'object' && error.message) || text).split(/\n\s+at /, 1)[0];
  return { error_type: clip(kind), message: clip(message), traceback: clip(text) };
}

module.exports = { send, errorFields };
