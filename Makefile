# The front door. CMake does the work: see CMakePresets.json for the presets behind these words.
JOBS ?= $(shell nproc)
# Tests at a time: the end-to-end ones wait more than they work.
TEST_JOBS ?= $(shell n=$$(nproc); [ $$n -lt 3 ] && n=3; [ $$n -gt 8 ] && n=8; echo $$n)
# `make test ONLY='e2e/faults*'`: a part of a name, or a pattern; several with commas.
ONLY ?=
# `make test REPEAT=20 BUSY=2`: each test twenty times, beside two loops that use up a CPU each.
REPEAT ?= 1
BUSY ?= 0
PREFIX ?= /usr/local
# `make test KUBERNETES=no` builds no Kubernetes (some minutes, once), and leaves the tests out that need one.
KUBERNETES ?= yes
# `make PACKAGES=no` installs no Debian packages.
PACKAGES ?= yes

MAKEFLAGS += --no-print-directory
packages = @[ "$(PACKAGES)" = no ] || tools/install-packages.sh
# Usage: $(call configure,PRESET,OPTIONS). Quiet unless it fails.
configure = @mkdir -p build && { cmake --preset $(1) $(2) >build/configure-$(1).log 2>&1 \
  || { cat build/configure-$(1).log; exit 1; }; }
compile = @cmake --build --preset $(1) -j $(JOBS) --target $(2)
# Usage: $(call kubernetes,OPTIONS). Not for tests that have nothing to do with it; a failure is theirs to report.
kubernetes = @$(if $(filter no,$(KUBERNETES))$(if $(ONLY),$(if $(findstring kube,$(ONLY)),,no)),:,tools/kubernetes.sh $(1))
# A hard link where possible; a copy across file systems.
place = @ln -f build/release/rubato build/rubato 2>/dev/null || cp -f build/release/rubato build/rubato

.PHONY: build test trial demo demo-run bench soak check asan tidy fuzz format docs deploy wheel install clean help

## build    (default) the static binary build/rubato
build:
	$(packages) build
	$(call configure,release,$(if $(wildcard build/release/CMakeCache.txt),,-DRUBATO_TESTS=OFF))
	$(call compile,release,rubato)
	$(place)
	@echo "build/rubato is ready; try: build/rubato --help"

## test     build everything, run every test: unit, simulation, tidy, end to end. ONLY=Quorum: those with that name
test:
	$(packages) build test
	$(call kubernetes,--background)
	$(call configure,release,-DRUBATO_TESTS=ON)
	$(call compile,release,all)
	$(place)
	@tools/test.py build/release -j $(TEST_JOBS) --only '$(ONLY)' --repeat $(REPEAT) --busy $(BUSY)

## trial    kill and pause head, agents and workers of a real cluster at random: make trial STRIKES=500 SEED=1
STRIKES ?= 50
SEED ?= 1
trial: build
	$(packages) demo
	@tests/trial/trial.py --strikes $(STRIKES) --seed $(SEED)

## demo     see a training in a cluster grow, lose a node, lose the head, and end as it should
demo: build
	$(packages) demo
	@demo/run.sh

## demo-run see an elastic `rubato run` grow, and lose its host
demo-run: build
	$(packages) demo
	@demo/launcher.sh

## bench    torchrun and rubato side by side; clusters and jobs, here and over SSH; the autoscaler beside Ray's
bench: build
	$(packages) test
	$(call compile,release,bench_head_scale bench_churn bench_scale bench_allocate bench_sign bench_operator)
	@bench/run.py
	@bench/rescale.py
	@bench/training.py
	@bench/cluster.py
	@bench/ssh.py
	@bench/scale.py
	@bench/allocate.py
	@bench/simulate.py
	@bench/aws.py
	@bench/gcp.py
	@build/release/bench_operator

## soak     play scenarios of examples/ with many seeds: make soak SEEDS=1..100000
SEEDS ?= 1..10000
soak: build
	@for scenario in chaos spot steady changes pauses partitions adaptive; do echo "$$scenario:"; \
	  build/rubato simulate examples/scenarios/$$scenario.yaml --seeds $(SEEDS) || exit 1; done

## check    tidy, the unit and simulation tests by clang with ASan and UBSan, the fuzzers for a minute
check: tidy
	$(packages) build check
	@places=$$(clang-format --dry-run $(sources) 2>&1 | grep -c warning:); [ "$$places" = 0 ] \
	  || echo "warning: $$places places differ from clang-format; fix: make format"
	$(call configure,clang)
	$(call compile,clang,all)
	@tools/test.py build/clang -L unit -j $(JOBS)
	@tools/fuzz.sh

## asan     the same tests by g++, the compiler of the release, with ASan and UBSan
asan:
	$(packages) build test
	$(call configure,asan)
	$(call compile,asan,all)
	@tools/test.py build/asan -L unit -j $(JOBS)

## tidy     layers, banned calls, coroutine shapes, sizes; takes a second
tidy:
	@tools/tidy.py
	@tools/tidy_test.py --quiet

## fuzz     run the fuzzers; FUZZ_SECONDS=600 for ten minutes each
fuzz:
	$(packages) build check
	$(call configure,clang)
	$(call compile,clang,fuzzers)
	@tools/fuzz.sh $(FUZZ_SECONDS)

sources = $(shell find src -name '*.h' -o -name '*.cc')
## format   clang-format over src/
format:
	$(packages) check
	@clang-format -i $(sources)

## docs     docs/cli.md, config-keys.md, cluster.schema.json and the plots from the binary itself
docs: build
	@build/rubato docs >build/cli.md && mv build/cli.md docs/cli.md && echo "docs/cli.md is written"
	@build/rubato docs --openapi >build/openapi.yaml && mv build/openapi.yaml docs/openapi.yaml
	@build/rubato config explain --markdown >build/keys.md && mv build/keys.md docs/config-keys.md
	@build/rubato config schema >build/schema.json && mv build/schema.json docs/cluster.schema.json
	@build/rubato simulate examples/scenarios/day.yaml --seed 3 --svg docs/images/day >/dev/null
	@/usr/bin/python3 -B tools/goodput_plots.py

## deploy   deploy/kubernetes and deploy/helm from the binary itself
deploy: build
	@build/rubato k8s manifests --crd >deploy/kubernetes/crd.yaml
	@cp deploy/kubernetes/crd.yaml deploy/helm/rubato/crds/elasticjobs.yaml
	@build/rubato k8s manifests --image rubato:0.1.0 >deploy/kubernetes/operator.yaml
	@build/rubato k8s manifests --helm >deploy/helm/rubato/templates/operator.yaml

## wheel    one file for pip, with the binary and the training library: build/wheel/rubato-*.whl
wheel: build
	@tools/wheel.py build/rubato build/wheel

## install  copy the binary to PREFIX/bin (default /usr/local)
install: build/rubato
	@install -D -m 755 build/rubato $(DESTDIR)$(PREFIX)/bin/rubato
	@echo "installed $(DESTDIR)$(PREFIX)/bin/rubato"

build/rubato:
	@$(MAKE) build

## clean    remove build/
clean:
	@rm -rf build

help:
	@sed -n 's/^## /make /p' Makefile
