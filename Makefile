.PHONY: observe observe-test yama demo test suite browser-test agents-test picture torture variants-test languages-test cheats-test builds-test bench check lint requirements schemas snapshots clean

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
	$(PYTHONS)/python -m pytest --collect-only -qq >/dev/null  # compiles the tests once, not once in each worker
	$(PYTHONS)/python -m pytest -n 4 --dist worksteal

lint:
	@scripts/setup
	$(PYTHONS)/ruff check .
	$(PYTHONS)/ruff format --check .
	$(PYTHONS)/mypy
	$(PYTHONS)/lint-imports --no-logo
	$(PYTHONS)/deptry src
	$(PYTHONS)/python scripts/export_schemas.py --check

bench:  ## Measure every part beside its peers; writes docs/benchmarks*.md
	@scripts/setup
	$(PYTHONS)/python -m benchmarks.execution --write docs/benchmarks.md
	$(PYTHONS)/python -m benchmarks.engine --write docs/benchmarks-engine.md
	$(PYTHONS)/python -m benchmarks.context --write docs/benchmarks-context.md
	$(PYTHONS)/python -m benchmarks.turns --write docs/benchmarks-turns.md
	$(PYTHONS)/python -m benchmarks.repair --write docs/benchmarks-repair.md
	$(PYTHONS)/python -m benchmarks.interactive --write docs/benchmarks-interactive.md
	$(PYTHONS)/python -m benchmarks.service --write docs/benchmarks-service.md

yama:  ## Test Landlock's notifier under kernel.yama.ptrace_scope=1 (as root; changes the whole machine for the time)
	@scripts/setup
	old=$$(sysctl -n kernel.yama.ptrace_scope) && trap "sysctl -q -w kernel.yama.ptrace_scope=$$old" EXIT \
	    && sysctl -q -w kernel.yama.ptrace_scope=1 && $(PYTHONS)/python -m pytest tests/sandbox/test_sandbox_unprivileged.py

SECONDS ?= 180
torture:  ## Kill, freeze and starve workers for SECONDS, and prove that it changed nothing
	@scripts/setup
	PYTHONPATH=tests:tests/workers $(PYTHONS)/python tests/workers/torture.py $(SECONDS) $(SEED)
	$(PYTHONS)/python -m pytest -m slow tests

variants-test:  ## Run the whole runs and searches that vary what `make test` shows once
	@scripts/setup
	$(PYTHONS)/python -m pytest -n 4 --dist worksteal -m variants tests

languages-test:  ## Run the matrix of test runners and outcomes, which `make test` samples
	@scripts/setup
	$(PYTHONS)/python -m pytest -n 2 -m languages tests

browser-test:  ## Look at the pages in Chromium (Debian's `chromium`, or CHROMIUM=/path)
	@scripts/setup
	$(PYTHONS)/python -m pytest tests/browser -m 'browser or not browser'

observe:  ## Start Debian's Prometheus on the service at URL (default http://127.0.0.1:8080)
	@scripts/setup
	$(PYTHONS)/python scripts/observe $(if $(URL),--url $(URL))

observe-test:  ## Ask a real Prometheus, which scraped a real run, every query of the Grafana dashboard
	@scripts/setup
	$(PYTHONS)/python -m pytest -m observe tests

cheats-test:  ## Run every cheating change of tests/verify/*cheats.py through the whole engine
	@scripts/setup
	$(PYTHONS)/python -m pytest -n 2 -m cheats tests

builds-test:  ## Build whole programs with scripted models: killed, edited, refused, asked about
	@scripts/setup
	$(PYTHONS)/python -m pytest -n 2 -m builds tests

agents-test:  ## Let the real agents from npm (claude, codex, gemini, opencode) work in the sandbox with a scripted model
	@scripts/setup
	$(PYTHONS)/python -m pytest -n 2 -m agents tests

schemas:  ## Write what docs/ generates from the code: docs/schemas, docs/cli.md and docs/configuration.md
	@scripts/setup
	$(PYTHONS)/python scripts/export_schemas.py

picture:  ## Draw docs/demo.svg again from a real `codepilot demo`
	@scripts/setup
	$(PYTHONS)/python scripts/terminal_svg.py

snapshots:  ## Write the roles' prompts again as they are now (tests/agents/snapshots)
	@scripts/setup
	RENEW_SNAPSHOTS=1 $(PYTHONS)/python -m pytest tests/agents/test_agent_prompts.py

requirements:  ## Pin the dependency set again (needs uv)
	$(PIN) --all-extras --group dev pyproject.toml -o requirements.txt
	echo schemathesis | $(PIN) - -o tests/executor/schemathesis.txt
	echo playwright | $(PIN) - -o tests/browser/playwright.txt

clean:
	rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .hypothesis
