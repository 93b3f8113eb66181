# Every target that CI runs. Each installs what it needs (.ci/deps) and says what it installs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO       ?= go
FUZZTIME ?= 10s
PREFIX   ?= /usr/local
ARGS     ?=
PKG      ?= ./...
SCORE    ?= 90

# Stamped with the commit where git can read the checkout.
VCS := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false)

# Also where a first `make` installs: the go command may not be in the PATH yet, or not be there at all.
export PATH := $(PATH):/usr/local/go/bin
export PATH := $(PATH):$(or $(shell PATH='$(PATH)' $(GO) env GOPATH 2>/dev/null),$(HOME)/go)/bin

# Packages with goroutines of their own: tested under the race detector. Never the kernel data path, where it hangs
# (docs/adr/0006-two-test-runs.md).
RACE := \
	./internal/coap/... \
	./internal/control/... \
	./internal/kube/discovery/... \
	./internal/kube/pods/... \
	./internal/workers/... \
	./internal/datapath/udpnat/... \
	./internal/dtls/engine/... \
	./internal/bench/demo/... \
	./internal/bench/fragsim/... \
	./internal/testbed/netlab/... \
	./internal/tcpscale/stats/... \
	./internal/turn/allocation/... \
	./internal/turn/gateway/... \
	./internal/turn/turncat/... \
	./internal/udpio/...

# The packages without sockets, clocks and goroutines, whose tests `make mutate` judges.
PURE := \
	./internal/steering/cid ./internal/steering/evict ./internal/steering/flow ./internal/steering/heap ./internal/steering/lb \
	./internal/steering/maglev ./internal/steering/packet ./internal/steering/rate ./internal/steering/siphash ./internal/steering/slab \
	./internal/steering/steer \
	./internal/coap/cluster/membership ./internal/coap/message \
	./internal/control/announce/neighbour ./internal/control/announce/vrrp \
	./internal/dtls/record \
	./internal/snat \
	./internal/testbed/measure \
	./internal/turn/allocation

FRAMES ?= 1000000

.PHONY: differential
differential: ## the kernel data path against package steer on FRAMES random packets; needs root
	@.ci/deps go
	WEIR_ROOT=1 FRAMES=$(FRAMES) $(GO) test -count=1 -timeout 60m -run TestRootDifferential -v ./internal/datapath/ebpf ./internal/turn/kernelrelay

.PHONY: help demo kube-demo build image dist manifests kubelab conformance check test lint vulnerabilities licences fmt generate fuzz mutate bench install clean

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

build: ## bin/weir: one static, stripped program
	@.ci/deps go
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=$(VCS) -ldflags "-s -w" -o bin/weir ./cmd/weir

image: ## bin/weir-image.tar: a container image (OCI archive) for amd64 and arm64, made without a container engine, and its SBOM, bin/weir-*.spdx.json
	@.ci/deps go
	for arch in amd64 arm64; do CGO_ENABLED=0 GOARCH=$$arch $(GO) build -trimpath -buildvcs=$(VCS) -ldflags "-s -w" -o bin/weir-$$arch ./cmd/weir; done
	$(GO) run ./.ci/licences -spdx bin/licences.json >/dev/null
	$(GO) run -C tools/deploy . image -binaries amd64=$(CURDIR)/bin/weir-amd64,arm64=$(CURDIR)/bin/weir-arm64 -licences $(CURDIR)/bin/licences.json -o $(CURDIR)/bin/weir-image.tar
	for arch in amd64 arm64; do $(GO) run -C tools/deploy . sbom -binary $(CURDIR)/bin/weir-$$arch -architecture $$arch -licences $(CURDIR)/bin/licences.json > bin/weir-$$arch.spdx.json; done

dist: ## bin/dist, a release: programs, deb and rpm, image, completions, manual pages, SBOM, SHA256SUMS; the same commit gives the same bytes
	@.ci/deps go
	@.ci/dist $(GO) $(VCS)

manifests: ## deploy/*-manifests.yaml from the charts in deploy
	@.ci/deps go
	$(GO) test -run TestChart ./internal/kube/kubetest -update

kubelab: ## the control plane of Kubernetes that tests run, built once into the cache
	@.ci/deps go kubelab

REPORT ?= docs/conformance/gateway-api-v1.6.3.yaml

conformance: ## the Gateway API's own suite for UDP and TCP, through the kernel data path, with its report in REPORT; needs root
	@.ci/deps go conformance
	WEIR_ROOT=1 WEIR_CONFORMANCE=$(abspath $(REPORT)) $(GO) test -count=1 -timeout 20m -tags conformance -run TestRootConformance -v ./internal/cli/operator

demo: build ## balance real DTLS sessions on this machine for half a minute, with a report in bin/demo.html (ARGS="--clients 50")
	bin/weir demo --report bin/demo.html $(ARGS)

kube-demo: build ## Weir in a Kubernetes on this machine, whose Pods are replaced while traffic goes on, with a report in bin/kube-demo.html; needs root
	@.ci/deps go kubelab
	$(GO) build -C tools/deploy -buildvcs=false -o $(CURDIR)/bin/deploy .
	$(GO) build -buildvcs=false -o bin/kubedemo ./cmd/kubedemo
	bin/kubedemo -report bin/kube-demo.html $(ARGS)

test: ## every test, in a few minutes; those that need root run as root, and skip else (WEIR_ROOT=1: a skip is a failure)
	@.ci/deps go test
	@.ci/test $(RACE)

check: ## before a commit: the tests that need neither root nor seconds, and lint
	@.ci/deps go lint
	@.ci/check

lint: ## linters, formatting, and a go.mod that is tidy
	@.ci/deps go lint
	golangci-lint run --allow-parallel-runners $(PKG)
	$(GO) mod tidy -diff

vulnerabilities: ## known vulnerabilities that weir reaches, where govulncheck's database can be reached
	@.ci/deps go
	@.ci/vulnerabilities

licences: ## the licences of all modules that weir and its tests consist of are allowed ones
	@.ci/deps go
	@$(GO) run ./.ci/licences

fmt: ## format as lint wants it
	@.ci/deps go lint
	golangci-lint fmt

generate: ## what is generated and committed; CI checks that nothing changes
	@.ci/deps go generate
	$(GO) generate ./...

fuzz: ## every fuzz target for FUZZTIME each, or all of them in FUZZBUDGET (2h); what they find of interest is kept in FUZZCORPUS
	@.ci/deps go
	@FUZZTIME=$(FUZZTIME) FUZZBUDGET=$(FUZZBUDGET) .ci/fuzz $(PKG)

mutate: ## does a test fail when the code is changed? One change of ten in the pure packages (ALL=1: each, PKG=./internal/steering/flow)
	@.ci/deps go
	$(GO) run ./.ci/mutate -min $(SCORE) -sample $(if $(ALL),1,10) $(if $(filter ./...,$(PKG)),$(PURE),$(PKG))

bench: ## Go benchmarks with allocations (PKG=./internal/steering/...)
	@.ci/deps go
	$(GO) test -run '^$$' -bench . -benchmem $(PKG)

bin/weir:
	$(MAKE) build

SHARE = $(DESTDIR)$(PREFIX)/share

install: bin/weir ## what build built, as PREFIX/bin/weir, its shell completions and manual pages
	install -D -m 755 bin/weir $(DESTDIR)$(PREFIX)/bin/weir
	install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	bin/weir completion bash > $(SHARE)/bash-completion/completions/weir
	bin/weir completion zsh > $(SHARE)/zsh/site-functions/_weir
	bin/weir completion fish > $(SHARE)/fish/vendor_completions.d/weir.fish
	bin/weir man $(SHARE)/man/man1

clean: ## what build and test leave
	rm -rf bin .ci/out
