.PHONY: yama demo test suite torture languages-test bench check lint requirements schemas snapshots clean

PYTHONS := .venv/bin
# Without compiled files every process that a test starts would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE
PIN := uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
    --python-version 3.11

demo:  ## Fix a real bug offline, end to end
	@scripts/setup
	@$(PYTHONS)/codepilot demo

test:  ## Lint, types, import contracts, dependency hygiene, and the whole suite
	@scripts/setup
	@$(MAKE) --no-print-directory -j 2 lint suite

suite:
	@scripts/setup
	@$(PYTHONS)/python -m compileall -q src  # what runs in sandboxes cannot leave its compiled files for the next one
	$(PYTHONS)/python -m pytest -n 4 --dist worksteal

lint:
	@scripts/setup
	$(PYTHONS)/ruff check .
	$(PYTHONS)/ruff format --check .
	$(PYTHONS)/mypy
	$(PYTHONS)/lint-imports --no-logo
	$(PYTHONS)/deptry src
	$(PYTHONS)/python scripts/export_schemas.py --check

bench:  ## Measure the execution plane and the durable engine beside their peers, the agent loop and the repair search; writes docs/benchmarks*.md
	@scripts/setup
	$(PYTHONS)/python -m benchmarks.execution --write docs/benchmarks.md
	$(PYTHONS)/python -m benchmarks.engine --write docs/benchmarks-engine.md
	$(PYTHONS)/python -m benchmarks.context --write docs/benchmarks-context.md
	$(PYTHONS)/python -m benchmarks.turns --write docs/benchmarks-turns.md
	$(PYTHONS)/python -m benchmarks.repair --write docs/benchmarks-repair.md

yama:  ## Test Landlock's notifier under kernel.yama.ptrace_scope=1 (as root; changes the whole machine for the time)
	@scripts/setup
	old=$$(sysctl -n kernel.yama.ptrace_scope) && trap "sysctl -q -w kernel.yama.ptrace_scope=$$old" EXIT \
	    && sysctl -q -w kernel.yama.ptrace_scope=1 && $(PYTHONS)/python -m pytest tests/sandbox/test_sandbox_unprivileged.py

SECONDS ?= 180
torture:  ## Kill, freeze and starve workers for SECONDS, and prove that it changed nothing
	@scripts/setup
	PYTHONPATH=tests:tests/workers $(PYTHONS)/python tests/workers/torture.py $(SECONDS) $(SEED)
	CODEPILOT_SLOW=1 $(PYTHONS)/python -m pytest tests/executor/test_executor_schema.py

languages-test:  ## Run the matrix of test runners and outcomes, which `make test` samples
	@scripts/setup
	$(PYTHONS)/python -m pytest -n 2 -m languages tests

schemas:  ## Write the contracts' JSON Schemas to docs/schemas
	@scripts/setup
	$(PYTHONS)/python scripts/export_schemas.py

snapshots:  ## Write the roles' prompts again as they are now (tests/agents/snapshots)
	@scripts/setup
	RENEW_SNAPSHOTS=1 $(PYTHONS)/python -m pytest tests/agents/test_agent_prompts.py

requirements:  ## Pin the dependency set again (needs uv)
	$(PIN) --all-extras --group dev pyproject.toml -o requirements.txt
	echo schemathesis | $(PIN) - -o tests/executor/schemathesis.txt

clean:
	rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .hypothesis
