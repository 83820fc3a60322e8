# `make help` lists what there is. Everything runs in .venv, which `make setup` builds.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PY := .venv/bin/python
FOLDERS := api client session optimizer router engine operators sources bench_driver
unexport PYTHONDONTWRITEBYTECODE # without byte code every process compiles all that it imports
TWO_EXECUTORS := local-cluster[2,1,1024]

# $(call step,NAME,COMMAND): run it, say how long it took, stop at the first failure
define step
	@printf '\n── %s\n' '$(1)'; began=$$(date +%s); \
	if $(2); then printf '── %s: passed in %d s\n' '$(1)' $$(($$(date +%s) - began)); \
	else status=$$?; printf '── %s: FAILED after %d s\n' '$(1)' $$(($$(date +%s) - began)) >&2; exit $$status; fi
endef

.PHONY: chaos check help setup demo test lint types unit test-more test-long test-bounds test-executors fuzz fuzz-formats audit bench bench-quick bench-kernels \
	bench-control bench-kafka bench-push bench-replays bench-levels soak first-mark picture recording drawing settings metrics client-wheel clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.* ## /\1\t/p' Makefile | while IFS=$$'\t' read -r name text; do \
		printf '  make %-14s %s\n' "$$name" "$$text"; done

setup: ## find Python and Java, build .venv, install what is pinned (quick when nothing changed)
	@bash setup.sh

demo: setup ## see it at work; SECONDS=60 ends it by itself, else Ctrl-C
	@$(PY) -m braid.bench_driver.demo $(if $(SECONDS),--seconds $(SECONDS))

# three at a time, as half of the time goes by waiting for services; tests are collected before, so that one process
# compiles them instead of each of the three
test: ## the gate: set up, then lint, types and all tests but those of test-more; stops at the first failure
	$(call step,setup,bash setup.sh)
	$(call step,ruff check,$(PY) -m ruff check .)
	$(call step,ruff format,$(PY) -m ruff format --check .)
	$(call step,mypy and what tests need,bash tests/install.sh & $(PY) -m pytest -qq --collect-only >/dev/null & $(PY) -m mypy -p braid && wait)
	$(call step,audit,$(PY) -m tests.security.audit --if-reachable)
	$(call step,pytest,$(PY) -m pytest -n 3 --dist loadgroup -m "not alone and not long")
	@printf '\n── all passed\n'

check: ## the inner loop, two minutes: rules, types, and the quick tests of what differs from SINCE (HEAD if not given)
	$(call step,ruff check,$(PY) -m ruff check .)
	$(call step,ruff format,$(PY) -m ruff format --check .)
	$(call step,mypy,$(PY) -m mypy -p braid)
	@tests=$$($(PY) -m tests.kit.affected $(SINCE)); if [[ -z $$tests ]]; then echo "── no test imports what changed"; \
	else $(PY) -m pytest -q -n 2 -m "not service and not alone and not long" $$tests || [[ $$? == 5 ]]; fi

lint: setup ## ruff: rules and format
	$(call step,ruff check,$(PY) -m ruff check .)
	$(call step,ruff format,$(PY) -m ruff format --check .)

types: setup ## mypy: strict, on all packages
	$(call step,mypy,$(PY) -m mypy -p braid)

unit: setup ## the tests that need no running service
	$(call step,pytest without a service,$(PY) -m pytest -m "not service")

test-more: setup ## what takes a minute a test: executors, Prometheus, pauses and sinks under kills, power cuts, groups and split keys, a backup, secrets; an hour, or more on a slow machine
	$(call step,pytest of what takes long,$(PY) -m pytest -n 2 --dist loadgroup -m long)
	$(call step,pytest of what measures,$(PY) -m pytest -m alone tests/bench_driver)

test-long: setup ## the oracle with 60 examples and 2000 windows at once, the crash test with 15 kills, and all other tests
	$(call step,pytest with more examples and crashes,BRAID_ORACLE_EXAMPLES=60 BRAID_ORACLE_WINDOWS=2000 BRAID_ORACLE_MINUTES=10 BRAID_CRASH_KILLS=15 $(PY) -m pytest)

test-bounds: setup ## the tests of operators with compiled kernels that check the bounds of their arrays; six minutes
	$(call step,pytest of operators with bounds checked,NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/.tools/checked-kernels $(PY) -m pytest -n 2 --dist loadgroup tests/operators -m "not service and not alone and not long")

fuzz: setup ## ten minutes of requests made from the OpenAPI document; SECONDS=3600 for more, SEED=… to do it again
	$(call step,requests from the OpenAPI document,BRAID_FUZZ_SECONDS=$(or $(SECONDS),600) $(if $(SEED),BRAID_FUZZ_SEED=$(SEED)) $(PY) -m pytest tests/security/test_fuzz.py)

fuzz-formats: setup ## 100 000 mutations of each format, and a minute of each with a fuzzer that looks at branches; COUNT=1000000, SECONDS=600 for more, SEED=… for the same mutations
	$(call step,mutations of formats,BRAID_FORMAT_MUTATIONS=$(or $(COUNT),100000) $(if $(SEED),BRAID_FUZZ_SEED=$(SEED)) $(PY) -m pytest -s -m long tests/security/test_format_fuzz.py)
	@[[ -d .tools/atheris ]] || $(PY) -m pip install -q --target .tools/atheris 'atheris>=3,<4' || echo '── atheris cannot be had'
	@[[ ! -d .tools/atheris ]] || PYTHONPATH=.tools/atheris $(PY) -m tests.security.guided_fuzz $(or $(SECONDS),60)

audit: setup ## look for advisories about what requirements.lock pins; fails when that cannot be found out
	@$(PY) -m tests.security.audit

test-executors: setup ## the oracle on two executors, JVMs apart from the driver's, of which five are killed
	$(call step,pytest on two executors,BRAID_TEST_MASTER='$(TWO_EXECUTORS)' BRAID_EXECUTOR_KILLS=5 $(PY) -m pytest tests/oracle tests/executors)

bench-quick: setup ## the quick form of every workload of the benchmark, under a minute each
	$(call step,quick benchmarks,BRAID_BENCH_SECONDS=6 $(PY) -m pytest tests/bench_driver/test_bench_quick.py)

bench: setup ## measure beside stock Spark and Flink; ARGUMENTS="WORKLOAD --queries 1,20 --peers spark"
	@.venv/bin/braid bench $(or $(ARGUMENTS),astream-sc1 --queries 1,20,100,1000 --peers spark,flink)

bench-kernels: setup ## time the kernels of a source task and of a partition; ARGUMENTS="mixed-bids --queries 100" for those of mixed queries only
	@$(if $(ARGUMENTS),,$(PY) -m pytest tests/operators/bench_operators.py --benchmark-columns=median,min,rounds --benchmark-sort=name)
	@$(PY) -m tests.operators.bench_mixed_queries $(ARGUMENTS)

bench-control: setup ## what queries cost the control side: created, retired and looked at while 10 000 run
	@$(PY) -m braid.bench_driver.programs.control_plane $(ARGUMENTS)

chaos: setup ## hostile requests and faults beside queries that an oracle checks; SECONDS=3600, SEED=… to do it again
	@$(PY) -m tests.chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

soak: setup ## 10 000 queries for 20 minutes: memory and batches; ARGUMENTS="--minutes 2" for less
	@$(PY) -m braid.bench_driver.programs.soak $(ARGUMENTS)

first-mark: setup ## measure starts, empty batches and single deployments; ARGUMENTS="--quick" for a short one
	@$(PY) -m braid.bench_driver.programs.first_mark $(ARGUMENTS)

bench-kafka: setup ## how many tuples a second come from Kafka; ARGUMENTS="--queries 1000"
	@$(PY) -m braid.bench_driver.programs.kafka_rate $(ARGUMENTS)

bench-push: setup ## how many tuples a second pushes bring; ARGUMENTS="--format arrow --queries 1000"
	@$(PY) -m braid.bench_driver.programs.push_rate $(ARGUMENTS)

bench-replays: setup ## what queries that start in the past take, and cost live ones; ARGUMENTS="--rows 5000000"
	@$(PY) -m braid.bench_driver.programs.replays $(ARGUMENTS)

bench-levels: setup ## what queries over queries take beside those over streams; ARGUMENTS="--rate 1000000"
	@$(PY) -m braid.bench_driver.programs.levels $(ARGUMENTS)

picture: setup ## take the picture of the page that the documents show
	@$(PY) -m tests.page.picture

recording: setup ## record the session of the shell that the documents show
	@$(PY) -m tests.api.cli.recording

drawing: ## draw the way of rows and queries that the documents show
	@$(PY) -m docs.drawing

settings: ## write docs/settings.md from what the code says of each setting
	@$(PY) -m docs.reference.settings

metrics: ## write docs/metrics.md from what the code says of each metric
	@$(PY) -m docs.reference.metrics

client-wheel: setup ## build the wheel of the Python client, without the service and Spark, in dist/
	@trap 'rm -rf client/build client/*.egg-info' EXIT; $(PY) -m pip wheel -q --no-deps --wheel-dir dist ./client; ls dist

clean: ## remove caches, builds and what demos left; .venv and .tools stay
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist spark-warehouse metastore_db derby.log
	@find $(FOLDERS) tests -name __pycache__ -type d -prune -exec rm -rf {} +
