# Everything that is done to this repository by hand or by CI. A target installs
# what it needs, or says what is missing.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# make run ARGS=--once: arguments of `sluice demo`.
ARGS ?=
# make test PKG=./actors RUN=TestPool: a part of the tests.
PKG ?= ./...
RUN ?=
# make fuzz FUZZTIME=5m: time for each fuzz target.
FUZZTIME ?= 20s
# make bench BENCH=-short: arguments of the bench.
BENCH ?=
# A file that the counts of `make test` and `make e2e-model` are appended to.
COUNTS ?=

testcount = go run ./internal/repotest/testcount $(if $(COUNTS),-add $(COUNTS))

# make test-claude CLAUDE_VERSIONS=2.1.332: with one version of the program alone.
CLAUDE_VERSIONS ?=

.PHONY: help run build test examples check fmt bench fuzz test-claude e2e-model clean need-go

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## Build, and see it work: sluice demo (ARGS=--once ends after the verdict)
	@bin/sluice demo $(ARGS)

build: need-go ## Build bin/sluice
	@go build -o bin/sluice ./cmd/sluice

test: need-go examples ## Run all tests with the race detector (PKG=./actors RUN=TestPool for some)
	@go test -race -json -timeout 20m $(if $(RUN),-run '$(RUN)') $(PKG) | $(testcount)
	@go test -json -run '^TestRevive$$' . | $(testcount) # see revive_test.go
	@go test -json -run '^TestConformance$$/.*/.*/sizes' ./providers/registry | $(testcount) # see internal/conformance/race.go
	@cd judge && go test -json ./... | (cd .. && $(testcount))

examples: ## Install what the examples need, once, into ignored folders
	@examples/install.sh

check: need-go ## Format, vet, staticcheck, tidy: everything but the tests
	@tools/check.sh

fmt: need-go ## Format all Go files
	@git ls-files -z --cached --others --exclude-standard -- '*.go' | xargs -0 go tool -modfile=tools/go.mod gofumpt -w

bench: need-go ## Measure against a fake upstream, beside a bare proxy (BENCH=-short: 25 s)
	@go run ./bench $(BENCH)

fuzz: need-go ## Run each fuzz target for FUZZTIME
	@tools/fuzz.sh $(FUZZTIME)

test-claude: need-go ## Ask the real claude programs, against a fake API (exit 77: cannot be installed here)
	@programs=$$(SLUICE_CLAUDE_VERSIONS='$(CLAUDE_VERSIONS)' providers/claudecode/install.sh) || exit $$?; \
	CLAUDE_PROGRAMS=$$(echo $$programs) go test -json -count=1 -timeout 15m -tags claude_cli -run '^TestReal' ./providers/claudecode | $(testcount)

e2e-model: need-go ## Run real prompts through a small real model (exit 77: cannot be installed here)
	@e2e/model.sh >/dev/null || { rc=$$?; exit $$rc; }
	@e2e/ollama.sh >/dev/null || { rc=$$?; [ $$rc = 77 ] || exit $$rc; }
	@go test -json -count=1 -timeout 30m -tags e2e_model ./e2e | $(testcount)

clean: ## Remove everything that is built or installed here
	@rm -rf bin .cache .examples examples/node/node_modules .tools
	@if [ -x e2e/model.sh ]; then e2e/model.sh --clean; fi

need-go:
	@tools/need-go.sh
