// Makes checkpoints with the checkpoint service of agentic-orchestrator (aop), as its control plane does.
// Arguments: the package's directory, a repository and a directory for records. Each line on standard input asks for one
// checkpoint and names how many files changed; the answer is the milliseconds that it took.
import path from 'node:path';
import readline from 'node:readline';
import { pathToFileURL } from 'node:url';

const [home, repository, records] = process.argv.slice(2);
const file = path.join(home, 'dist/apps/control-plane/application/services/checkpoint-service.js');
const { CheckpointService } = await import(pathToFileURL(file).href);

let changed = 0;
let state = { frontMatter: {}, body: '' };
const service = new CheckpointService({
  repoRoot: repository,
  featurePathResolver: () => records,
  worktreePathResolver: () => repository,
  validateDiff: async () => ({ valid: true, violations: [] }),
  watchdog: {
    getChangeSummary: async () => ({
      changedFiles: Array.from({ length: changed }, (_, number) => `f${number}.py`),
      hasNetNewChanges: true,
    }),
    resetChangeCount: () => {},
  },
  provider: {},
  readState: async () => state,
  updateState: async (_feature, _version, update) => {
    state = await update(state.frontMatter, state.body);
  },
  config: { validationOnCheckpoint: true, violationSeverity: 'error', revertOnViolation: false },
});

for await (const line of readline.createInterface({ input: process.stdin })) {
  changed = Number(line);
  const began = performance.now();
  await service.createCheckpoint({ featureId: 'bench', trigger: 'changes' });
  console.log(performance.now() - began);
}
