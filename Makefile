# make build     leaves dist/bpe.so, dist/bpe and dist/bpe-lab, their debug information in dist/debug, manual pages in
#                dist/man and completions in dist/completions
# make check     within a minute: format, lints and unit tests of what changed (PACKAGE=coherence: of that), and the documents
# make test      installs what is missing; within ten minutes a verdict: lints, documents, all unit tests, bounded models, and one
#                trial of each subject in a real server; TESTS="ddl memory" runs all trials of some subjects instead
# make test-full all trials, canaries and schedules, the servers' own suites in part; leaves evidence/<commit>.json. Some trials run
#                on one server of two: TURN=1 on the other one than TURN=2
# make tables    writes the tables of docs/evidence/reliability.md from the evidence of a whole run: EVIDENCE=evidence/....json
# make mutants   changes about 60 expressions of coherence, engine and plugin, one at a time, and says which the tests do not notice, in
#                some hours: SEED=7 chooses others, SAMPLE=20 fewer
# make coverage  lines of these that make test runs, also inside servers: TIER=full for those of make test-full
# make ci        what continuous integration runs: make test, and one sixth of make test-full; TURN=807 repeats that of a log
# make crashes   kills each server 200 times under load, and takes the power from disks; CYCLES=20
# make life      both servers for hours under loads, rests, growth, DDL, backups and what else a month brings: HOURS=4, or
#                MINUTES=30; SEED=... repeats the order of things
# make attacks   changes data directories between two runs of a server and compares all answers, about 400 cases in an hour:
#                ATTACKS=btrfs runs those with that in their names; TRIES=5 repeats those under writes
# make failovers clusters fail over at random, COUNT=50 times; SEED=... repeats the order of things
# make release   bpe.so and bpe for x86-64 and ARM64, for every Linux with glibc 2.28 or newer, as archives and packages in
#                dist/release: MACHINES="x86_64"
# make site      the documentation as a site, in target/site/html
# make mtr       the servers' own test suites with the extension on: SERVER=..., SUITES=innodb,parts, ARGS="--quick"
# make demo      installs what is missing, builds, and demonstrates the extension
#                SERVER=mariadb-10.11 | mariadb-11.8 | mysql-9.7, ARGS="--quick", "--pool 64M,128M", ...
#                CLUSTER=replicas | galera | group-replication shows a failover with a cold and with a warm standby instead
#                UI=1 opens the console with the experience page on the demonstration's server instead, until Ctrl-C;

CLUSTER ?=
SERVER ?= $(if $(filter group-replication,$(CLUSTER)),mysql-9.7,mariadb-10.11)
ARGS ?=
UI ?=
TESTS ?=
PACKAGE ?=
TURN ?=
EVIDENCE ?= $(shell ls -t evidence/*.json | head -1)
SUITES ?=
CARGO ?= cargo

# A rustup that was installed a moment ago is not yet in the shell's PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin
built := $(or $(CARGO_TARGET_DIR),target)/release

TARGET ?= trace
SECONDS ?= 60
HOURS ?= 4
MINUTES ?= $(shell echo $$(($(HOURS) * 60)))
SEED ?=
SAMPLE ?=
TIER ?= test

MACHINES ?= x86_64 aarch64

.PHONY: release build check test test-full mutants coverage tables ci attacks crashes failovers life mtr demo dependencies fuzz miri address deny site

build:
	scripts/build-page
	$(CARGO) build --release --locked -p plugin -p bpe -p bpe-lab
	scripts/fill-dist $(built) dist

check:
	scripts/test check $(if $(PACKAGE),--package $(PACKAGE))

test:
	scripts/test $(TESTS)

test-full:
	scripts/test full $(if $(TURN),--turn $(TURN))

mutants:
	SEED=$(SEED) SAMPLE=$(SAMPLE) scripts/mutants

coverage:
	scripts/coverage $(TIER)

tables:
	$(CARGO) run --quiet --locked -p test-runner -- --tables $(EVIDENCE)

ci:
	scripts/test ci $(if $(TURN),--turn $(TURN))

release:
	scripts/release $(MACHINES)

CYCLES ?= 200
crashes:
	BPE_CRASH_CYCLES=$(CYCLES) scripts/test crashes warm_events

life:
	BPE_LIFE_SECONDS=$$(($(MINUTES) * 60)) $(if $(SEED),BPE_LIFE_SEED=$(SEED)) scripts/test life

TRIES ?= 1
ATTACKS ?=
attacks:
	scripts/install-dependencies mariadb-10.11 mysql-9.7 tests attacks
	BPE_ATTACKS=all BPE_ROLLBACK_TRIES=$(TRIES) $(CARGO) test --locked -p integration-tests --test restart -- $(or $(ATTACKS),attacks::)

COUNT ?= 50
failovers:
	BPE_FAILOVERS_AT_RANDOM=$(COUNT) $(if $(SEED),BPE_FAILOVERS_SEED=$(SEED)) scripts/test failovers

mtr: dependencies
	scripts/install-dependencies suites
	$(MAKE) --no-print-directory build
	$(CARGO) run --release --locked -p server-suites -- --server $(SERVER) $(if $(SUITES),--suites $(SUITES)) $(ARGS)

demo: dependencies
	$(if $(filter-out 0,$(UI)),scripts/install-dependencies page)
	$(if $(filter galera,$(CLUSTER)),scripts/install-dependencies galera)
	$(MAKE) --no-print-directory build
	dist/bpe-lab demo --server $(SERVER) $(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(filter-out 0,$(UI)),--ui) $(ARGS)

# One of the targets in crates/fuzz-targets under libFuzzer.
fuzz:
	scripts/nightly fuzz $(TARGET) $(SECONDS)

# Unit tests of the extension under Miri.
miri:
	scripts/nightly miri

# The plugin under AddressSanitizer in MariaDB: some of the integration tests, or TESTS.
address:
	scripts/nightly address $(TESTS)

# Licences, sources and known weaknesses of the dependencies.
deny:
	scripts/check-dependencies

site:
	scripts/build-site

dependencies:
	scripts/install-dependencies $(SERVER)
