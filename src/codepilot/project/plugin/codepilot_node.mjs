// The reporter for `node --test`: groups that merely hold tests are no tests of their own.
import { createRequire } from 'node:module';

const { send, errorFields } = createRequire(import.meta.url)('./codepilot_report.cjs');

export default async function* report(source) {
  const path = [];
  const written = new Map();
  for await (const { type, data } of source) {
    if (type === 'test:stderr' && data.file) {
      written.set(data.file, ((written.get(data.file) ?? '') + data.message).slice(-12000));
    }
    if (type === 'test:stderr' || type === 'test:stdout') yield data.message;
    if (type === 'test:start') path.splice(data.nesting, path.length, data.name);
    if (type === 'test:dequeue' && data.name !== data.file && data.file) {
      send('run', { file: data.file, names: [...path.slice(0, data.nesting), data.name] });
    }
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const error = data.details?.error;
    if (data.nesting === 0 && (data.name === data.file || data.file === undefined)) {
      if (type === 'test:fail') send('broken', { file: data.file ?? data.name, ...unloaded(written.get(data.file)) });
      continue;
    }
    const group = data.details?.type === 'suite';
    if (group && (type === 'test:pass' || error?.failureType === 'subtestsFailed')) continue;
    const outcome = data.skip !== undefined || data.todo !== undefined ? 'skipped' : type === 'test:pass' ? 'passed' : 'failed';
    const names = [...path.slice(0, data.nesting), data.name];
    const duration = (data.details?.duration_ms ?? 0) / 1000;
    send('test', { file: data.file, names, outcome: group ? 'error' : outcome, duration, ...errorFields(error?.cause ?? error) });
  }
  send('end');
}

function unloaded(text = '') {
  const line = text.split('\n').find((one) => /^\w*(?:Error|Exception)\b.*: /.test(one)) ?? '';
  const [kind, ...rest] = line.split(': ');
  return { error_type: kind.split(' ')[0] || 'Error', message: rest.join(': ') || 'it could not be loaded', traceback: text };
}
