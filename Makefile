# `make` needs a Python 3.11 or newer and nothing else. Everything it makes is in .venv, .venv-*, build and dist.
PYTHON ?= python3

VENV := .venv
PY := $(VENV)/bin/python
VENV_MIN := .venv-min
PY_MIN := $(VENV_MIN)/bin/python
CEPH := ceph-mon ceph-osd ceph-mgr radosgw ceph-common
POSTGRESQL := postgresql postgresql-client
JAVA := openjdk-17-jre-headless
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
PYTEST_ARGS ?=
BENCH_ARGS ?=
# Processes that share the tests, a file each at a time: one more than two cores, as some tests wait for servers.
CORES ?= 2
TEST_JOBS ?= 3
# Finders of rare failures at once in the build. Each has ten seconds by the clock, and waits for disks and processes.
FINDER_JOBS ?= 4
SHARED := -n $(TEST_JOBS) --dist loadfile
# Threads of OpenMP, which PyTorch, XGBoost and MXNet compute with, wait for work in a loop unless they are told to sleep.
# They would take the cores from the other process of tests.
test test-%: export OMP_WAIT_POLICY := passive
INSTALL := $(PYTHON) .ci/install.py
EDITABLE := --no-build-isolation --config-settings editable_mode=strict
# pyproject.toml has ranges, for users; constraints/ has, for each environment here, the versions that its tests run with.
PINNED = --constraint constraints/$(1).txt

# The folders at the root are packages of another name (see setup.py): keep the root off sys.path, so that nobody
# imports them by accident.
export PYTHONSAFEPATH := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without files of bytecode, each process that a test starts would compile all modules that it imports.
unexport PYTHONDONTWRITEBYTECODE

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

.PHONY: help
help:  ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## */\1\t/' | awk -F '\t' '{printf "  make %-12s %s\n", $$1, $$2}'

# ---------------------------------------------------------------------------------------------------- environments

.PHONY: env
env: build/env-links  ## Make .venv: the store, its tests, PyTorch, XGBoost, S3 and the linters

# What installs packages: uv, which takes a tenth of the time, or else pip.
build/uv/pyvenv.cfg:
	@mkdir -p build
	$(PYTHON) -m venv build/uv
	build/uv/bin/python -m pip install --quiet uv || echo "uv cannot be installed; pip takes longer"
	touch $@

# pip is for the tests of what a user installs.
%/pyvenv.cfg: | build/uv/pyvenv.cfg
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "tensortrial needs Python 3.11 or newer: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv --without-pip $*
	$(INSTALL) $*/bin/python pip 'setuptools>=77'
	touch $@

# The stamps are in build/ because the editable install is there too: a link tree of one link a file, the only layout in
# which import, pytest, mypy and the wheel agree on the names. A file added or removed asks for new links, not an edit.
build/env: pyproject.toml constraints/main.txt $(VENV)/pyvenv.cfg
	$(INSTALL) $(PY) $(call PINNED,main) $(EDITABLE) -e '.[test,lint]'
	@touch $@

build/env-links: build/env build/files
	$(INSTALL) $(PY) $(EDITABLE) --no-deps -e .
	@touch $@

build/files: FORCE
	@mkdir -p build
	@{ echo setup.py; find tensorstore hooks queries -type f ! -name '*.pyc'; } | sort > $@.$$$$; \
	if cmp -s $@.$$$$ $@; then rm $@.$$$$; else mv $@.$$$$ $@; fi

.PHONY: FORCE
FORCE:

# The oldest versions that the core supports, without any framework. They are there first, and the wheel, which is
# installed as a user would, with no constraints, may change none of them.
build/env-min: pyproject.toml constraints/min.txt $(VENV_MIN)/pyvenv.cfg
	@mkdir -p build
	$(INSTALL) $(PY_MIN) $(call PINNED,min) build 'setuptools>=77' duckdb ml_dtypes numpy pyarrow xxhash
	@touch $@

build/env-min-wheel: build/env-min build/files $(shell find tensorstore hooks queries -name '*.py' -o -name '*.sql')
	rm -rf build/wheel-min
	$(PY_MIN) -m build --no-isolation --outdir build/wheel-min . > build/wheel-min.log || { cat build/wheel-min.log; exit 1; }
	wheel=$$(ls build/wheel-min/*.whl); \
	$(PY_MIN) -m pip freeze --exclude tensortrial > build/wheel-min.before; \
	$(PY_MIN) -m pip install --quiet "$$wheel[test-core]"; \
	$(PY_MIN) -m pip install --quiet --no-deps --force-reinstall "$$wheel"
	$(PY_MIN) -m pip freeze > build/wheel-min.after
	! grep --invert-match --line-regexp --fixed-strings --file build/wheel-min.after build/wheel-min.before
	@touch $@

# TensorFlow is 1.5 GB, so it joins .venv only when asked for.
.PHONY: env-tf
env-tf: env build/env-tf  ## Add TensorFlow, Keras 3 and JAX to .venv

build/env-tf: build/env
	$(INSTALL) $(PY) $(call PINNED,main) tensorflow-cpu jax
	@touch $@

# Frameworks that cannot share .venv have one of their own.
VENV_TF215 := .venv-tf215
PACKAGES_TF215 := tensorflow-cpu tensorflow-estimator scikit-learn
VENV_MXNET := .venv-mxnet
PACKAGES_MXNET := mxnet scikit-learn

# The tools whose runs are imported, and libraries that own the training loop or its logs.
VENV_TRACKERS := .venv-trackers
PACKAGES_TRACKERS := aim alembic hydra-core mlflow-skinny nvdlfw-inspect pytorch-ignite 'ray[train]' scikit-learn sqlalchemy torch torchtitan trackio wandb

# What `make packages` installs: everything but the store, whose editable installs share one tree of links in build/ and
# so may not run next to tests.
build/packages-tf215: PACKAGES := $(PACKAGES_TF215)
build/packages-mxnet: PACKAGES := $(PACKAGES_MXNET)
build/packages-trackers: PACKAGES := $(PACKAGES_TRACKERS)
build/packages-fakesnow: PACKAGES = $(PACKAGES_FAKESNOW)
build/packages-bqemulator: PACKAGES = $(PACKAGES_BQEMULATOR)
build/packages-tf215 build/packages-mxnet build/packages-trackers build/packages-fakesnow build/packages-bqemulator: build/packages-%: constraints/%.txt .venv-%/pyvenv.cfg
	@mkdir -p build
	$(INSTALL) .venv-$*/bin/python $(call PINNED,$*) 'setuptools>=77' $(PACKAGES)
	@touch $@

# The parts of the build that run. Some need a program; Gluon's models need MXNet.
PARTS ?= emulators horovod models mxnet page spark tf215 trackers
PROGRAMS = servers $(if $(filter page,$(PARTS)),chromium) $(if $(filter spark,$(PARTS)),java)
SEPARATE = $(if $(filter models,$(PARTS)),mxnet) $(filter mxnet tf215 trackers,$(PARTS)) $(if $(filter emulators,$(PARTS)),bqemulator fakesnow) $(filter horovod,$(PARTS))

.PHONY: packages
packages: $(PROGRAMS) $(addprefix build/packages-,$(SEPARATE))  ## Install what frameworks that cannot share .venv need, and the programs that tests start

.PHONY: env-tf215 env-mxnet env-trackers
env-tf215: build/env-tf215-links  ## Make .venv-tf215: TensorFlow 2.15, with Keras 2 and tf.estimator
env-mxnet: build/env-mxnet-links  ## Make .venv-mxnet: MXNet 1.9
env-trackers: build/env-trackers-links  ## Make .venv-trackers: Aim, MLflow, W&B, Trackio, Ignite, Ray, Hydra, torchtitan

build/env-tf215 build/env-mxnet build/env-trackers: build/env-%: pyproject.toml build/packages-%
	$(INSTALL) .venv-$*/bin/python $(call PINNED,$*) $(EDITABLE) -e '.[test-core]'
	@touch $@

build/env-tf215-links build/env-mxnet-links build/env-trackers-links: build/env-%-links: build/env-% build/files
	$(INSTALL) .venv-$*/bin/python $(EDITABLE) --no-deps -e .
	@touch $@

# Horovod is built here, without optimization, which takes four minutes of a core. Its setup.py
# imports TensorFlow, and what is next to it.
.PHONY: env-horovod
env-horovod: build/env-horovod-links  ## Make .venv-horovod: TensorFlow 2.15 with Horovod, which it builds

build/packages-horovod: constraints/horovod.txt constraints/tf215.txt .venv-horovod/pyvenv.cfg
	@mkdir -p build
	$(INSTALL) .venv-horovod/bin/python $(call PINNED,horovod) $(PACKAGES_TF215) cloudpickle cmake psutil pyyaml 'setuptools>=77' wheel
	env -u PYTHONSAFEPATH PATH="$(CURDIR)/.venv-horovod/bin:$$PATH" HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 \
	    HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_DEBUG=1 \
	    .venv-horovod/bin/python -m pip install --quiet $(call PINNED,horovod) --no-build-isolation --no-deps horovod
	@touch $@

build/env-horovod: pyproject.toml build/packages-horovod
	$(INSTALL) .venv-horovod/bin/python $(call PINNED,horovod) $(EDITABLE) -e '.[test-core]'
	@touch $@

build/env-horovod-links: build/env-horovod build/files
	$(INSTALL) .venv-horovod/bin/python $(EDITABLE) --no-deps -e .
	@touch $@

# smdebug itself, for slow tests: of the import of a run that it wrote, and of what programs print.
VENV_SMDEBUG := .venv-smdebug

.PHONY: env-smdebug
env-smdebug: build/env-smdebug  ## Make .venv-smdebug; TENSORTRIAL_SMDEBUG_PYTHON=.venv-smdebug/bin/python makes the tests use it

build/env-smdebug: constraints/smdebug.txt $(VENV_SMDEBUG)/pyvenv.cfg
	@mkdir -p build
	$(INSTALL) $(VENV_SMDEBUG)/bin/python $(call PINNED,smdebug) numpy pandas psutil requests scikit-learn setuptools smdebug torch
	# smdebug asks for a package of this name, xgboost-cpu has another; what it depends on but does not need here is 300 MB.
	$(INSTALL) $(VENV_SMDEBUG)/bin/python $(call PINNED,smdebug) --no-deps xgboost
	@touch $@

# Spark is 0.5 GB, so it joins .venv only when asked for.
.PHONY: env-spark
env-spark: env build/env-spark  ## Add Apache Spark to .venv

build/env-spark: build/env
	$(INSTALL) $(PY) $(call PINNED,main) 'tensortrial[spark]'
	@touch $@

# Models that nobody here wrote join .venv only when asked for. torchvision, which timm needs, comes for CUDA only.
.PHONY: env-models
env-models: env-tf build/env-models  ## Add transformers, peft, TRL, accelerate, Lightning, Flax, Optax, LightGBM and CatBoost to .venv, with TensorFlow and Keras

build/env-models: build/env-tf
	$(INSTALL) $(PY) $(call PINNED,main) 'tensortrial[models]'
	@touch $@

.PHONY: env-page
env-page: env build/env-page  ## Add playwright, which drives a browser, to .venv

build/env-page: build/env
	$(INSTALL) $(PY) $(call PINNED,main) 'tensortrial[test-page]'
	@touch $@

# What the first parts of the build need.
.PHONY: environments
environments: env env-docs build/env-min-wheel build/js/typescript

# Emulators of warehouses, each with versions that .venv cannot have. The tests export into them and query them.
PACKAGES_FAKESNOW := fakesnow 'snowflake-connector-python[pandas]'
PACKAGES_BQEMULATOR := bqemulator duckdb-extensions duckdb-extension-spatial google-cloud-bigquery

.PHONY: env-emulators
env-emulators: build/env-fakesnow-links build/env-bqemulator-links  ## Make .venv-fakesnow and .venv-bqemulator: emulators of Snowflake and BigQuery

build/env-fakesnow build/env-bqemulator: build/env-%: pyproject.toml build/packages-%
	$(INSTALL) .venv-$*/bin/python $(call PINNED,$*) $(EDITABLE) -e '.[test-core]'
	@touch $@

build/env-fakesnow-links build/env-bqemulator-links: build/env-%-links: build/env-% build/files
	$(INSTALL) .venv-$*/bin/python $(EDITABLE) --no-deps -e .
	@touch $@

# Installs what the shell's variable names, which may be nothing. Parts of the build that begin together may ask for the
# same; a service that the package starts must not keep the lock.
define apt-get
if [ -z "$(1)" ]; then exit 0; \
elif ! command -v apt-get > /dev/null; then echo "No apt-get here. Install by hand what provides:$(1)"; exit 1; fi; \
export DEBIAN_FRONTEND=noninteractive; install="$(SUDO) apt-get install -o DPkg::Lock::Timeout=600 -y -qq --no-install-recommends $(1)"; \
mkdir -p build; flock --close build/apt.lock $(SHELL) -c "$$install || { $(SUDO) apt-get update -qq && $$install; }"
endef

# The libraries that benchmarks/peers compares with.
.PHONY: env-bench
env-bench: build/env-bench-links  ## Make .venv-bench: what the benchmark of peers compares with

build/env-bench: pyproject.toml constraints/bench.txt .venv-bench/pyvenv.cfg
	@mkdir -p build
	$(INSTALL) .venv-bench/bin/python $(call PINNED,bench) $(EDITABLE) -e '.[bench]'
	@touch $@

build/env-bench-links: build/env-bench build/files
	$(INSTALL) .venv-bench/bin/python $(EDITABLE) --no-deps -e .
	@touch $@

# What checks the types of the page's JavaScript. The page itself needs neither Node nor npm.
TYPESCRIPT := 7.0.2

build/js/typescript:
	@mkdir -p build/js
	@missing=; command -v npm > /dev/null || missing=" nodejs npm"; $(call apt-get,$$missing)
	npm install --prefix build/js --no-save --no-audit --no-fund --silent typescript@$(TYPESCRIPT)
	@touch $@

# The documentation is built without any framework: griffe reads the sources.
VENV_DOCS := .venv-docs

.PHONY: env-docs
env-docs: build/env-docs-links  ## Make .venv-docs: what builds the documentation

build/env-docs: pyproject.toml constraints/docs.txt $(VENV_DOCS)/pyvenv.cfg
	@mkdir -p build
	$(INSTALL) $(VENV_DOCS)/bin/python $(call PINNED,docs) $(EDITABLE) -e '.[docs]'
	@touch $@

build/env-docs-links: build/env-docs build/files
	$(INSTALL) $(VENV_DOCS)/bin/python $(EDITABLE) --no-deps -e .
	@touch $@

# Edit or delete lines of a file first, and make its environment: what is installed then is what it says afterwards.
.PHONY: constraints
constraints: env-models env-spark env-tf215 env-mxnet env-trackers env-docs  ## Write the versions that are installed here into constraints/
	for name in main tf215 mxnet trackers docs; do \
	    venv=.venv-$$name; [ $$name != main ] || venv=.venv; file=constraints/$$name.txt; \
	    { grep '^#' $$file; $$venv/bin/python -m pip freeze --exclude-editable | sed -E 's/[+][a-z0-9.]+$$//'; } > $$file.new; \
	    mv $$file.new $$file; done

.PHONY: servers
servers:  ## Install the servers that the tests start, by apt-get, if they are missing: an S3 server (Ceph's), PostgreSQL
	@missing=; command -v radosgw > /dev/null || missing+=" $(CEPH)"; \
	command -v initdb > /dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' > /dev/null || missing+=" $(POSTGRESQL)"; \
	$(call apt-get,$$missing)

.PHONY: chromium
chromium:  ## Install the browser that the tests of the page drive, by apt-get, if it is missing
	@missing=; command -v chromium > /dev/null || missing=" chromium"; $(call apt-get,$$missing)

.PHONY: java
java:  ## Install the Java that Spark runs on, by apt-get, if it is missing
	@missing=; command -v java > /dev/null || missing=" $(JAVA)"; $(call apt-get,$$missing)

# ---------------------------------------------------------------------------------------------------------- checks

.PHONY: demo
demo: env  ## Train a CNN in one process and watch it from a second
	$(PY) examples/digits.py
	@echo 'They are installed here: $(VENV)/bin/tensortrial page runs/digits'

.PHONY: demo-page
demo-page: env  ## Train a network that goes wrong on purpose, and open the page where it does
	$(PY) examples/exploding.py

.PHONY: demo-keras
demo-keras: env-tf  ## Train with Keras and show the run
	$(PY) examples/digits_keras.py
	@echo 'They are installed here: $(VENV)/bin/tensortrial page runs/digits_keras'

.PHONY: demo-hf
demo-hf: env-models  ## Fine-tune a small language model with the Trainer of transformers, and show the run
	$(PY) examples/text_transformers.py

.PHONY: demo-lightning
demo-lightning: env-models  ## Train a network with Lightning and show the run
	$(PY) examples/digits_lightning.py
	@echo 'They are installed here: $(VENV)/bin/tensortrial page runs/digits_lightning'

.PHONY: demo-jax
demo-jax: env-models  ## Train a network in JAX and show the run
	$(PY) examples/digits_jax.py

.PHONY: demo-xgboost
demo-xgboost: env  ## Boost trees, and query the run by SQL and rules
	$(PY) examples/breast_cancer_xgboost.py
	@echo 'They are installed here: $(VENV)/bin/tensortrial page runs/breast_cancer'

# What only files, processes and a terminal decide is the same with any version: `make test` has run it.
NOT_MIN := $(addprefix tests/tensorstore/,cli/test_terminal.py maintenance/test_compaction_meanwhile.py maintenance/test_repair.py \
    $(addprefix read/test_,compacted_meanwhile.py ended_workers.py replaced_runs.py) write/test_lease_terms.py \
    $(addprefix storage/test_,durability.py storage.py tail_cache.py))
# Every test of a framework, slow ones too. tests/hooks/conftest.py leaves out what the environment has no package for.
TESTS_TF := tests/hooks/keras tests/hooks/session tests/importers/tensorboard/test_tensorflow_events.py
TESTS_MXNET := tests/hooks/mxnet
TESTS_TRACKERS := tests/importers/trackers $(addprefix tests/hooks/,hydra ignite nvdlfw_inspect ray torchtitan)
TESTS_MODELS := tests/models tests/test_examples.py $(addprefix tests/hooks/,catboost jax lightgbm)
# The examples that `make test-slow` runs in each build.
EXAMPLES_SLOW := breast_cancer_xgboost digits regression_numpy
# The pages of a framework's own; `make test-slow` runs those of no part of their own.
PAGES_MODELS := boosting jax transformers lightning accelerate
PAGES_OTHERS := $(PAGES_MODELS) tensorflow mxnet loops
TEST_PAGE := tests/test_docs.py::test_the_examples_of_a_framework_run
# Programs that were written for smdebug; each environment runs those of its framework.
TEST_PROGRAMS := tests/smdebug/test_programs.py tests/smdebug/test_frameworks.py
TESTS_SPARK := tests/tensorstore/engines/test_spark.py tests/queries/test_named_queries_spark.py
TESTS_EMULATORS := $(wildcard tests/*/test_*emulator*.py)
# What belongs to a part of its own, which runs its slow tests, too.
OTHERS := $(addprefix --ignore=,$(TESTS_MODELS) $(TESTS_TF) $(TESTS_MXNET) $(TESTS_SPARK) $(TESTS_EMULATORS))
EXAMPLES_OTHERS := $(filter-out $(EXAMPLES_SLOW),$(basename $(notdir $(wildcard examples/*.py))))
OTHERS_SLOW := $(filter-out --ignore=tests/test_examples.py,$(OTHERS)) \
    $(foreach page,$(PAGES_OTHERS),--deselect '$(TEST_PAGE)[$(page).md]') \
    $(foreach example,$(EXAMPLES_OTHERS),--deselect 'tests/test_examples.py::test_an_example_runs[$(example).py')

.PHONY: test
test: env servers  ## Run the tests, all but the slow ones and those of emulators, foreign models, Spark, TensorFlow, MXNet and Horovod
	$(PY) -m pytest $(SHARED) -m 'not slow and not browser' $(OTHERS) $(PYTEST_ARGS)

# Both parts run, also if the first one fails.
.PHONY: test-slow
test-slow: env servers  ## Run the slow tests of what `make test` tests, and what finds rare failures by chance for some seconds each
	status=0; \
	$(PY) -m pytest -n $(TEST_JOBS) --dist worksteal -m 'slow and not browser' $(OTHERS_SLOW) $(PYTEST_ARGS) || status=1; \
	$(PY) tests/night/runner.py --jobs $(FINDER_JOBS) --build || status=1; \
	exit $$status

.PHONY: night
night: HOURS ?= 8
night: export OMP_WAIT_POLICY := passive
night: env servers  ## Run all that finds rare failures by chance: HOURS=8 SEED=20260101 (default: the date) ONLY=forks CASE=12; the report is in build/night.md
	$(if $(CASE),$(PY) tests/night/cases.py $(ONLY) --case $(CASE) $(if $(SEED),--seed $(SEED)),\
	    $(PY) tests/night/runner.py --jobs $(CORES) --hours $(HOURS) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)))

.PHONY: test-min
test-min: build/env-min-wheel  ## Run the store's tests with the oldest versions it supports and no framework
	$(PY_MIN) -m pytest $(SHARED) -m 'not slow and not s3 and not distributed and not browser' $(addprefix --ignore=,$(NOT_MIN)) $(PYTEST_ARGS) tests/tensorstore

.PHONY: fuzz
fuzz: SECONDS ?= 60
fuzz: SEED ?= 1
fuzz: env  ## Damage runs and read them: SECONDS=60 SEED=1, or CASE=1000042 to do one case again
	$(PY) tests/fuzz/fuzz.py --seconds $(SECONDS) --seed $(SEED) $(if $(CASE),--case $(CASE))

.PHONY: kill
kill: KILLS ?= 1000
kill: SEED ?= 1
kill: env  ## Kill training processes at random points and read what they saved: KILLS=1000 SEED=1, or RUN=17 to write one run again
	$(PY) tests/processes/kill.py --kills $(KILLS) --seed $(SEED) $(if $(RUN),--run $(RUN))

.PHONY: simulate
simulate: SEEDS ?= 10000
simulate: FIRST ?= 0
simulate: env  ## Simulate runs whose storage fails and whose processes die: SEEDS=10000 FIRST=0, or SEED=123 to do one again, or EXHAUST=1
	$(PY) tests/simulation/simulate.py --jobs $(CORES) --seeds $(SEEDS) --first $(FIRST) $(if $(SEED),--again $(SEED)) $(if $(EXHAUST),--exhaust)

.PHONY: soak
soak: SECONDS ?= 600
soak: SEED ?= 1
soak: env  ## Let 64 processes write one run for SECONDS=600, while 16 read and one compacts it
	$(PY) tests/processes/soak.py --seconds $(SECONDS) --seed $(SEED)

.PHONY: flips
flips: FLIPS ?= 1000
flips: SEED ?= 1
flips: ASKED ?= 1
flips: env  ## Flip bits of runs one at a time, and read them: FLIPS=1000 SEED=1, EVERY=1 for every bit of a small run, or FLIP=17; ASKED=50 is quick
	$(PY) tests/fuzz/flips.py --flips $(if $(FLIP),1 --first $(FLIP),$(if $(EVERY),1000000000,$(FLIPS))) $(if $(EVERY),--every) --seed $(SEED) --asked $(ASKED)

.PHONY: test-tf
test-tf: env-tf  ## Run the tests of the TensorFlow hooks on the newest TensorFlow
	$(PY) -m pytest $(SHARED) $(PYTEST_ARGS) $(TESTS_TF) '$(TEST_PAGE)[tensorflow.md]'

.PHONY: test-tf215
test-tf215: env-tf215  ## Run the tests of the TensorFlow hooks on TensorFlow 2.15
	$(VENV_TF215)/bin/python -m pytest $(SHARED) $(PYTEST_ARGS) $(TESTS_TF) $(TEST_PROGRAMS)

.PHONY: test-page
test-page: env-page chromium  ## Run the tests of the page in a real browser; screenshots are in build/page
	$(PY) -m pytest -n $(CORES) --dist loadfile -m browser $(PYTEST_ARGS) tests/page

.PHONY: test-models
test-models: env-models env-mxnet  ## Run models of transformers, PyTorch, Keras and Gluon, each hooked and without a hook
	$(PY) -m pytest -n $(CORES) --dist worksteal $(PYTEST_ARGS) $(TESTS_MODELS) \
	    $(foreach example,$(EXAMPLES_SLOW),--deselect 'tests/test_examples.py::test_an_example_runs[$(example).py') \
	    $(foreach page,$(PAGES_MODELS),'$(TEST_PAGE)[$(page).md]')
	$(VENV_MXNET)/bin/python -m pytest $(PYTEST_ARGS) tests/models/test_gluon_zoo.py

.PHONY: test-trackers
test-trackers: env-trackers  ## Run the tests of imports from trackers, and of Ignite, Ray, Hydra, DLFW-Inspect and torchtitan
	$(VENV_TRACKERS)/bin/python -m pytest $(SHARED) $(PYTEST_ARGS) $(TESTS_TRACKERS) '$(TEST_PAGE)[loops.md]'

.PHONY: test-horovod
test-horovod: env-horovod  ## Run the test of jobs that Horovod starts
	.venv-horovod/bin/python -m pytest $(PYTEST_ARGS) tests/hooks/session/test_horovod.py

.PHONY: test-mxnet
test-mxnet: env-mxnet  ## Run the tests of the MXNet hook
	$(VENV_MXNET)/bin/python -m pytest $(SHARED) $(PYTEST_ARGS) $(TESTS_MXNET) $(TEST_PROGRAMS) '$(TEST_PAGE)[mxnet.md]'

.PHONY: test-spark
test-spark: env-spark servers java  ## Run the tests of what Apache Spark answers
	$(PY) -m pytest $(SHARED) $(PYTEST_ARGS) $(TESTS_SPARK)

.PHONY: test-emulators
test-emulators: env env-emulators  ## Run the tests of what emulators of Snowflake and BigQuery answer
	TENSORTRIAL_FAKESNOW_PYTHON=.venv-fakesnow/bin/python TENSORTRIAL_BQEMULATOR_PYTHON=.venv-bqemulator/bin/python \
	    $(PY) -m pytest $(PYTEST_ARGS) $(filter-out tests/exports/%,$(TESTS_EMULATORS))
	# bqemulator's own plugin for pytest needs Docker's library.
	.venv-bqemulator/bin/python -m pytest -p no:bqemulator $(PYTEST_ARGS) tests/exports/test_export_bigquery_emulator.py
	.venv-fakesnow/bin/python -m pytest $(PYTEST_ARGS) tests/exports/test_export_snowflake_emulator.py

.PHONY: check-all
check-all:  ## Run the build with all its parts, also those that no change is near
	CI_ALL=1 bash .ci/run

.PHONY: lint
lint: lint-style lint-types lint-imports lint-page  ## Check style, format, types and imports, also of the page's JavaScript

.PHONY: lint-style
lint-style: env
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check

# mypy sees the links; the sed names the files behind them.
.PHONY: lint-types
lint-types: env
	$(VENV)/bin/mypy | sed -E 's,^build/__editable__[^/]*/tensortrial/,tensorstore/,; s,^tensorstore/(hooks|queries)/,\1/,'
	$(VENV)/bin/mypy --config-file tests/mypy.ini tests

.PHONY: lint-imports
lint-imports: env
	$(VENV)/bin/lint-imports

# The page's modules have their types in comments; nothing is compiled.
.PHONY: lint-page
lint-page: build/js/typescript
	build/js/node_modules/.bin/tsc -p tensorstore/pages/tsconfig.json

.PHONY: format
format: env  ## Rewrite the files in the project's format
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

.PHONY: bench
bench: BENCH_JSON ?= build/bench.jsonl
bench: ROUNDS ?= 1
bench: env  ## Run the benchmarks; their figures are written to build/bench.jsonl, too (BENCH_JSON=FILE, ROUNDS=5 for bench-compare)
	rm -f $(BENCH_JSON)
	for round in $$(seq $(ROUNDS)); do for file in $(filter-out benchmarks/common.py benchmarks/%_frameworks.py benchmarks/%_cuda.py,$(wildcard benchmarks/[a-z]*.py)); do \
	    echo "== $$file"; BENCH_JSON=$(BENCH_JSON) PYTHONPATH=benchmarks $(PY) $$file; done; done

.PHONY: bench-peers
bench-peers: env-bench env-smdebug  ## Compare with smdebug, TensorBoard, Zarr, Lance and others (BENCH_ARGS=--full: 1 GB)
	PYTHONPATH=benchmarks .venv-bench/bin/python -m peers $(BENCH_ARGS)

.PHONY: bench-compare
bench-compare: env-bench  ## Judge two files of bench-peers (--json) or of bench (ROUNDS=5): OLD=before.json NEW=after.json
	PYTHONPATH=benchmarks .venv-bench/bin/python -m peers.compare $(OLD) $(NEW)

.PHONY: bench-monitors
bench-monitors: env-bench  ## Compare what watching a model costs: W&B, TensorBoard, DLFW-Inspect, OLMo-core
	PYTHONPATH=benchmarks PYTHONWARNINGS=ignore .venv-bench/bin/python -m peers.monitors $(BENCH_ARGS)

.PHONY: bench-cuda
bench-cuda: env  ## Run the benchmark of training on a GPU, of which .venv must have a build of PyTorch
	PYTHONPATH=benchmarks $(PY) benchmarks/training_cuda.py $(BENCH_ARGS)

.PHONY: bench-tensorflow
bench-tensorflow: env-tf  ## Run the benchmark of the hooks of Keras and of sessions
	PYTHONPATH=benchmarks $(PY) benchmarks/training_frameworks.py --loop keras --loop keras_xla --loop tape --loop session $(BENCH_ARGS)

.PHONY: bench-mxnet
bench-mxnet: env-mxnet  ## Run the benchmark of the MXNet hook
	PYTHONPATH=benchmarks PYTHONWARNINGS=ignore $(VENV_MXNET)/bin/python benchmarks/training_frameworks.py --loop mxnet --loop mxnet_hybridized $(BENCH_ARGS)

# --------------------------------------------------------------------------------------------------- documentation

# Strict: a broken link or anchor, or a public name without a section in the reference, fails. (With --quiet, mkdocs counts
# no warnings, and nothing fails.)
.PHONY: docs
docs: env-docs  ## Build the documentation into build/site
	NO_MKDOCS_2_WARNING=1 $(VENV_DOCS)/bin/python -m mkdocs build
	@echo "The documentation is in build/site/index.html"

.PHONY: pictures
pictures: env-page chromium  ## Draw the pictures of the documentation again, from real runs and in a real browser
	$(INSTALL) $(PY) 'matplotlib>=3.9'
	$(PY) docs/site/pictures.py
	$(PY) docs/site/page_pictures.py

# --------------------------------------------------------------------------------------------------------- release

.PHONY: release-check
release-check: dist docs  ## Check the versions, the changelog, the wheel in a new environment, and the documentation
	$(PY) .ci/release_check.py dist

.PHONY: dist
dist: env  ## Build the source distribution and, from it, the wheel
	rm -rf dist
	$(PY) -m build --no-isolation

.PHONY: clean
clean:  ## Remove everything that make has made
	rm -rf $(VENV) .venv-* build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
