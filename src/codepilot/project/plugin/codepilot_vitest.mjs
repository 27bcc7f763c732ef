// The reporter for Vitest 3 and newer; older ones report everything at their end.
import { createRequire } from 'node:module';

const { send, errorFields } = createRequire(import.meta.url)('./codepilot_report.cjs');
const OUTCOMES = { passed: 'passed', pass: 'passed', failed: 'failed', fail: 'failed' };

function names(test) {
  const path = [];
  for (let one = test; one && one.type !== 'module' && one.type !== 'file' && one.name; one = one.parent ?? one.suite) path.unshift(one.name);
  return path;
}

export default class {
  modern = false;

  onTestCaseReady(test) {
    this.modern = true;
    send('run', { file: test.module.moduleId, names: names(test) });
  }

  onTestCaseResult(test) {
    const result = test.result();
    const duration = (test.diagnostic()?.duration ?? 0) / 1000;
    send('test', { file: test.module.moduleId, names: names(test), outcome: OUTCOMES[result.state] ?? 'skipped', duration, ...errorFields(result.errors?.[0]) });
  }

  onTestRunEnd(modules) {
    this.modern = true;
    for (const module of modules) {
      const [error] = module.errors();
      if (error) send('broken', { file: module.moduleId, ...errorFields(error) });
    }
    send('end');
  }

  onFinished(files = []) {
    if (this.modern) return;
    for (const file of files) {
      if (file.result?.errors?.length) send('broken', { file: file.filepath, ...errorFields(file.result.errors[0]) });
      for (const task of file.tasks) this.old(file, task, []);
    }
    send('end');
  }

  old(file, task, above) {
    const path = [...above, task.name];
    if (task.tasks) return task.tasks.forEach((one) => this.old(file, one, path));
    send('test', { file: file.filepath, names: path, outcome: OUTCOMES[task.result?.state] ?? 'skipped', duration: (task.result?.duration ?? 0) / 1000, ...errorFields(task.result?.errors?.[0]) });
  }
}
