# Every target below has a line for `make help` behind its ##.

SBOM := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
CRANE := github.com/google/go-containerregistry/cmd/crane@v0.22.1
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
VULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
FUZZTIME ?= 20s
SOAK ?= 60s
FLAT ?= 2h
CHAOS ?= 1m
ROLLS ?= 50
SERVERS ?=
SEED ?= 0
LANES ?=
REPORT ?= long
PARTS ?=
VERSION ?=

.DEFAULT_GOAL := help
.PHONY: help build test stories plain raced long race upgrade servers lint vuln sbom reproducible digests pin fuzz bench soak flat crash chaos browser manifests oidc image alerts demo module stripe-mock sdk release-report install-test-deps

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "  make %-18s %s\n", $$1, $$2}'

build: ## both programs, static, into bin/
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...

# Tests wait more than they work: more of them at once than there are processors, the longest first. The race detector would keep each
# process for a second at its end, vet is make lint's, and without tables for a debugger a test binary is linked in half the time.
PLAIN := go test -vet=off -ldflags=-w -timeout 45m
RACED := GORACE=atexit_sleep_ms=0 CGO_ENABLED=1 $(PLAIN) -race
# What runs without the race detector: stories in virtual time, what one goroutine drives, and processes that are killed.
UNRACED := ./internal/dispatch ./test/crash ./internal/bucket ./internal/ledger ./internal/record ./test
# What has nothing else to run, or runs by itself.
NOTRACED := -e internal/record$$ -e spillway/test$$ -e test/crash$$ -e test/e2e$$ -e test/chaos$$ -e test/sdk$$

test: install-test-deps ## installs what the tests need, then runs them all, under the race detector where several goroutines are at work
	@$(MAKE) --no-print-directory -k plain raced stories

stories: install-test-deps ## the built programs against real servers, a part of make test
	$(PLAIN) ./test/e2e
	$(RACED) ./test/chaos

plain: install-test-deps ## what needs no race detector, a part of make test
	$(PLAIN) -p 3 -parallel 12 $(UNRACED)

raced: install-test-deps ## what runs under the race detector, a part of make test
	$(RACED) -p 3 -parallel 6 ./cmd/dispatcher ./internal/dispatch $$(go list ./... | grep -v $(NOTRACED))

long: install-test-deps ## what make test tries at random, several times as often
	$(PLAIN) ./internal/bucket ./internal/producer -args -long
	$(RACED) ./cmd/dispatcher -run DamagedKey -args -long
	$(PLAIN) ./internal/ledger -run 'OneByOne|ExactlyOnePlace|Brakes' -args -long
	go test ./internal/dispatch -run 'Upset|NobodyWaits|OfAMoment|MinimalFile|EachPacksBooks|GatewayCanTell|LostAnswersAre|IncidentsLookups|OfEveryState' -timeout 3h -args -long # a thousand schedules of losses, restarts, clocks, limits, stalls, doubles and look-ups
	go test ./test/e2e -run 'TheCopierIsKilled|TheTableEquals|OutboxIsTaken|ManyLanesShare' -v -parallel 1 -timeout 30m -args -long # five minutes of kills beside a PostgreSQL, an outbox of 100,000 rows, and 10,000 lanes

race: install-test-deps ## the tests of internal/ five times over, for what fails only now and then, and the stories of make test with programs under the race detector
	$(RACED) -count=5 -timeout 60m ./internal/...
	$(RACED) ./test/e2e

lint: ## gofmt, go vet and staticcheck, which is fetched at its pinned version, and luacheck over the scripts as Redis gets them (apt-get as root; SKIP where it can not be installed)
	@unformatted=$$(gofmt -l bench client cmd internal test); if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	cd bench && go vet ./...
	cd test/browser && go vet .
	cd test/oidc && go vet .
	go run $(STATICCHECK) ./...
	@if ./test/deps.sh luacheck; then go test -vet=off ./test -run Luacheck; else echo "SKIP: luacheck can not be installed here"; fi

vuln: ## known vulnerabilities of what is called, by govulncheck; SKIP where its database can be had nowhere
	./test/vuln.sh $(VULNCHECK)

fuzz: ## each fuzz target for FUZZTIME (20s)
	@for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "== $$pkg $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; \
	done

soak: install-test-deps ## the limits, SOAK (60s) for each set-up, held to their rates as well, dispatchers killed all the time, and good jobs among bad ones in all ways (an hour); leave the machine alone meanwhile
	go test ./test/e2e -run 'RedisClock|EightProcesses|LimitIsKept|LimitSetLive|AShareLeaves|FirstJob|Idle|KilledAllTheTime|ProviderThat|RetryGoesNext' -v -timeout 60m -args -soak $(SOAK)
	go test ./test/e2e -run 'GoodJobsNeverWait|JobsThatFailAgain' -v -parallel 4 -timeout 4h -args -soak $(SOAK) # they wait more than they work

flat: install-test-deps ## watches the memory of two dispatchers and of Redis for FLAT (2h) at 190 jobs a second, and tells their growth with its error (make test: for 24 s)
	go test ./test/e2e -run MemoryStaysFlat -count=1 -v -timeout 24h -args -flat $(FLAT)

crash: install-test-deps ## kills a process at each of its Redis commands, in every way (make test takes every fourth, and has the ways take turns)
	go test ./test/crash -v -timeout 30m -args -full

upgrade: install-test-deps ## builds the version before from history, and has it and this one replace one another under load ROLLS (50) times (make test: twice); follows docs/upgrading.md and docs/backup.md
	go test ./test/e2e -run 'ReplaceOneAnother|StepsOfAnUpgrade|BackupIsRestored|NewerFormat' -count=1 -v -timeout 60m -args -rolls $(ROLLS)

servers: install-test-deps ## the core of the tests on other servers: those of SERVERS, or Redis 8 and Valkey 8 as Debian has them, unpacked into a directory of their own; SKIP where they can not be had
	./test/servers.sh $(SERVERS)

chaos: install-test-deps ## breaks everything at random for CHAOS (1m), then goes through the books of every job; SEED=n draws the same faults again; LANES=on or off, or on with every other seed
	CGO_ENABLED=1 go test -race ./test/chaos -run 'TestChaos$$' -v -timeout 24h -args -chaos $(CHAOS) -seed $(SEED) -lanes=$(LANES)

release-report: install-test-deps ## runs the battery of a release and writes docs/reports/VERSION.md, failures included: REPORT=short takes minutes a part, long (the usual) hours; PARTS=crash,chaos some of it; SEED=n draws the same faults again
	go run ./test/report -form "$(REPORT)" -parts "$(PARTS)" -version "$(VERSION)" -seed "$(SEED)"

stripe-mock: install-test-deps ## an ERP system's file against Stripe's own mock, which holds each call against Stripe's specification; installs stripe-mock with go install
	@./test/deps.sh stripe-mock
	PATH="$$(go env GOPATH)/bin:$$PATH" go test ./test/e2e -run StripeMock -v -timeout 10m

sdk: install-test-deps ## one story through the commands, the Go client, and clients generated from /openapi.json for TypeScript (by npm) and Python; SKIP where npm or python3 can not be had
	@./test/deps.sh npm python3 || echo "SKIP: npm or python3 can not be installed here"
	go test ./test/sdk -count=1 -v -timeout 20m

alerts: ## the alert rules, the metrics and a real Prometheus beside dispatchers at work; installs prometheus (apt-get as root) where missing
	@./test/deps.sh prometheus
	go vet -tags monitoring ./test/...
	go test -tags monitoring ./test ./test/e2e -run 'Promtool|Prometheus' -v -timeout 10m

bench: install-test-deps ## how fast jobs go in and out, and their memory, beside asynq, BullMQ (where node is) and a raw pipeline, and what admission costs, in one run (BENCH=-full: 1,000,000 jobs, BENCH=-cluster: a cluster of three, BENCH=-limit: peers that keep a limit; docs/benchmarks.md)
	cd bench && go run . $(BENCH)

browser: ## drives the console in headless Chromium, with and without JavaScript, and holds every page against npm's axe-core (AXE=axe.min.js: this one); installs chromium and npm (apt-get as root) where missing, SKIP where it can not; SHOTS=dir keeps pictures of every page
	@./test/deps.sh chromium npm || { echo "SKIP: chromium and npm can not be installed here"; exit 0; }; \
	axe="$(abspath $(AXE))"; [ -n "$$axe" ] || axe=$$(./test/browser/axe.sh) || { echo "SKIP: axe-core can not be fetched from npm here; name one with AXE=axe.min.js"; exit 0; }; \
	cd test/browser && go vet . && go test -count=1 . -timeout 20m -args -axe "$$axe" $(if $(SHOTS),-shots $(abspath $(SHOTS)))

manifests: ## docker-compose.yml by compose's own loader (with every profile), deploy/kubernetes by Kubernetes' own types, strictly
	cd test/manifests && go vet . && go test -count=1 .

oidc: install-test-deps ## logs in at the console and on the command line with a real OpenID provider, that of github.com/zitadel/oidc, which is fetched from Go's proxy
	cd test/oidc && go vet . && go test -count=1 . -timeout 10m

image: ## the Dockerfile's build line by hand, and its programs on a read-only root without privileges (needs root; no container engine)
	./test/image.sh

demo: ## the whole system on this machine, with nothing installed
	go run ./cmd/dispatcher demo

sbom: build ## what is in each program, as dist/dispatcher.cdx.json and dist/enqueue.cdx.json (CycloneDX), held against what Go itself says is in it
	@mkdir -p dist
	@for program in dispatcher enqueue; do \
	  go run $(SBOM) bin -json -std -noserial -notimestamp -version "$$(git describe --tags --always --dirty)" -output dist/$$program.cdx.json bin/$$program || exit 1; \
	done
	go vet -tags sbom ./test
	go test -tags sbom ./test -run SBOM -count=1 -v

reproducible: ## builds both programs twice from what is committed, in two places with nothing in common, and compares their SHA-256
	./test/reproducible.sh

digests: ## asks the registries whether the images of the Dockerfile and docker-compose.yml are still what their tags name; SKIP where a registry can not be reached
	@sed -n 's/^ *\(image:\|FROM\) \(.*@sha256:[0-9a-f]*\).*/\2/p' Dockerfile docker-compose.yml | while read -r image; do \
	  now=$$(go run $(CRANE) digest "$${image%@*}") || { echo "SKIP: $${image%@*} can not be asked for here"; continue; }; \
	  if [ "$$now" = "$${image#*@}" ]; then echo "the same   $$image"; else echo "MOVED      $$image is $$now now"; fi; \
	done

pin: ## puts IMAGE=registry.example.com/spillway@sha256:… into every manifest of deploy/kubernetes
	@echo "$(IMAGE)" | grep -Eq '^[^ @]+@sha256:[0-9a-f]{64}$$' || { echo "say the image by its digest: make pin IMAGE=registry.example.com/spillway@sha256:…"; exit 2; }
	sed -i -E 's#(image: )[^ ]*/spillway[:@][^ ]*#\1$(IMAGE)#' deploy/kubernetes/spillway.yaml deploy/kubernetes/enqueue/*job.yaml

module: ## renames the module to MODULE=… (github.com/acme/spillway, say), for those who publish it: go install finds it then
	@test -n "$(MODULE)" || { echo "say the new path: make module MODULE=github.com/acme/spillway"; exit 2; }
	./test/module.sh $(MODULE)

install-test-deps: ## redis-server and a C compiler, where missing, and PostgreSQL where it can be had (apt-get as root; else says what to install)
	@./test/deps.sh
