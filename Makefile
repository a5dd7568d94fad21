# The text after ## is a target's line in `make help`.

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

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "  make %-18s %s\n", $$1, $$2}'

build: ## build both programs, static, into bin/
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...

# Tests mostly wait, so more of them run in parallel than there are processors, the longest first. The race detector would delay each
# process by a second at its end, make lint runs vet, and without debugger tables a test binary links in half the time.
PLAIN := go test -vet=off -ldflags='-s -w' -timeout 45m
RACED := GORACE=atexit_sleep_ms=0 CGO_ENABLED=1 $(PLAIN) -race
# Packages that run without the race detector: tests in virtual time, with one goroutine, and of killed processes.
UNRACED := ./internal/dispatch ./test/crash ./internal/bucket ./internal/ledger ./internal/record ./test
# Packages with nothing else to run, or with their own target.
NOTRACED := -e internal/record$$ -e spillway/test$$ -e test/crash$$ -e test/e2e$$ -e test/chaos$$ -e test/sdk$$

test: install-test-deps ## install what the tests need and run all tests, with the race detector if several goroutines are involved
	@$(MAKE) --no-print-directory -k plain raced stories

stories: install-test-deps ## part of make test: the built programs against real servers
	$(PLAIN) ./test/e2e
	$(RACED) ./test/chaos

plain: install-test-deps ## part of make test: tests without the race detector
	$(PLAIN) -p 3 -parallel 12 $(UNRACED)

raced: install-test-deps ## part of make test: tests with the race detector
	$(RACED) -p 3 -parallel 6 ./cmd/dispatcher ./internal/dispatch $$(go list ./... | grep -v $(NOTRACED))

long: install-test-deps ## the randomised tests of make test, with many more rounds
	$(PLAIN) ./internal/bucket ./internal/producer -args -long
	$(RACED) ./cmd/dispatcher -run 'DamagedKey|OneReader' -args -long
	$(PLAIN) ./internal/ledger -run 'OneByOne|ExactlyOnePlace|Brakes|RoomIsShared' -args -long
	go test ./internal/dispatch -run 'Upset|NobodyWaits|OfAMoment|MinimalFile|EachPacksBooks|GatewayCanTell|LostAnswersAre|IncidentsLookups|OfEveryState|ToldToWait|AfterShortOnes|ARealLimit|RefusalsInAnOutage' -timeout 3h -args -long # a thousand schedules of losses, restarts, clocks, limits, stalls, doubles and look-ups
	go test ./test/e2e -run 'TheCopierIsKilled|TheTableEquals|OutboxIsTaken|ManyLanesShare|ReplaysKilled' -v -parallel 1 -timeout 30m -args -long # five minutes of kills beside a PostgreSQL, an outbox of 100,000 rows, and 10,000 lanes

race: install-test-deps ## run the tests of internal/ five times, to find flaky failures, and the end-to-end tests with the race detector in the programs
	$(RACED) -count=5 -timeout 60m ./internal/...
	$(RACED) ./test/e2e

lint: ## run gofmt, go vet, staticcheck (at its pinned version), and luacheck on the composed scripts (apt-get as root; SKIP if it can not be installed)
	@unformatted=$$(gofmt -l bench client cmd internal test); if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	cd bench && go vet ./...
	cd test/browser && go vet .
	cd test/oidc && go vet .
	go run $(STATICCHECK) ./...
	@if ./test/deps.sh luacheck; then go test -vet=off ./test -run Luacheck; else echo "SKIP: luacheck can not be installed here"; fi

vuln: ## report known vulnerabilities in called code with govulncheck; SKIP if its database is out of reach
	./test/vuln.sh $(VULNCHECK)

fuzz: ## run each fuzz target for FUZZTIME (20s)
	@for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "== $$pkg $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; \
	done

soak: install-test-deps ## test limits and rates for SOAK (60s) per set-up, with dispatchers killed all the time, and good jobs among bad ones in every way (an hour); keep the machine otherwise idle
	go test ./test/e2e -run 'RedisClock|EightProcesses|LimitIsKept|LimitSetLive|SetLiveAndLost|AwayIsNotCharged|LimitThatComesBack|AShareLeaves|FirstJob|Idle|KilledAllTheTime|ProviderThat|RetryGoesNext' -v -timeout 60m -args -soak $(SOAK)
	go test ./test/e2e -run 'GoodJobsNeverWait|JobsThatFailAgain' -v -parallel 4 -timeout 4h -args -soak $(SOAK) # they wait more than they work

flat: install-test-deps ## watch the memory of two dispatchers and of Redis for FLAT (2h) at a limit of 200/s, and report its growth with the standard error (make test: 8 s)
	go test ./test/e2e -run MemoryStaysFlat -count=1 -v -timeout 24h -args -flat $(FLAT)

crash: install-test-deps ## kill a process at each of its Redis commands, in every way (make test: every sixth command, later every twelfth, ways in turn)
	go test ./test/crash -v -timeout 30m -args -full

upgrade: install-test-deps ## build the previous version from history and roll between it and this one under load ROLLS (50) times (make test: twice); test docs/upgrading.md and docs/backup.md
	go test ./test/e2e -run 'ReplaceOneAnother|StepsOfAnUpgrade|BackupIsRestored|NewerFormat' -count=1 -v -timeout 60m -args -rolls $(ROLLS)

servers: install-test-deps ## run the core tests on other servers: those in SERVERS, or Debian's Redis 8 and Valkey 8, unpacked into a separate directory; SKIP if they are not available
	./test/servers.sh $(SERVERS)

chaos: install-test-deps ## inject random faults for CHAOS (1m), then check every job; SEED=n repeats the same faults; LANES=on or off (default: on with every other seed)
	CGO_ENABLED=1 go test -race ./test/chaos -run 'TestChaos$$' -v -timeout 24h -args -chaos $(CHAOS) -seed $(SEED) -lanes=$(LANES)

release-report: install-test-deps ## run the release tests and write docs/reports/VERSION.md, failures included: REPORT=short takes minutes per part, long (default) hours; PARTS=crash,chaos selects parts; SEED=n repeats the same faults
	go run ./test/report -form "$(REPORT)" -parts "$(PARTS)" -version "$(VERSION)" -seed "$(SEED)"

stripe-mock: install-test-deps ## run an ERP file against Stripe's own mock, which checks each call against Stripe's specification; installs stripe-mock with go install
	@./test/deps.sh stripe-mock
	PATH="$$(go env GOPATH)/bin:$$PATH" $(PLAIN) ./test/e2e -run StripeMock -v -timeout 10m

sdk: install-test-deps ## run one scenario with the commands, the Go client, and clients generated from /openapi.json for TypeScript (npm) and Python; SKIP if npm or python3 is not available
	@./test/deps.sh npm python3 || echo "SKIP: npm or python3 can not be installed here"
	go test ./test/sdk -count=1 -v -timeout 20m

alerts: ## test the alert rules, the metrics and a real Prometheus with running dispatchers; installs prometheus (apt-get as root) if missing
	@./test/deps.sh prometheus
	go vet -tags monitoring ./test/...
	$(PLAIN) -tags monitoring ./test ./test/e2e -run 'Promtool|Prometheus' -v -timeout 10m

bench: install-test-deps ## measure enqueue and dispatch rates, memory and admission cost, next to asynq, BullMQ and groupmq (if node is installed) and a raw pipeline (BENCH=-full: 1,000,000 jobs, BENCH=-cluster: a cluster of three, BENCH=-limit: peers that keep a limit, BENCH=-lanes: peers that have lanes; docs/benchmarks.md; BENCH=-latency, -scale, -backlog, -crowd: docs/capacity.md)
	cd bench && go run . $(BENCH)

browser: ## test the console in headless Chromium, with and without JavaScript, and check every page with npm's axe-core (or AXE=axe.min.js); installs chromium and npm (apt-get as root) if missing, else SKIP; SHOTS=dir keeps screenshots
	@./test/deps.sh chromium npm || { echo "SKIP: chromium and npm can not be installed here"; exit 0; }; \
	axe="$(abspath $(AXE))"; [ -n "$$axe" ] || axe=$$(./test/browser/axe.sh) || { echo "SKIP: axe-core can not be fetched from npm here; name one with AXE=axe.min.js"; exit 0; }; \
	cd test/browser && go vet . && go test -count=1 . -timeout 20m -args -axe "$$axe" $(if $(SHOTS),-shots $(abspath $(SHOTS)))

manifests: ## check docker-compose.yml with compose's own loader (every profile), and deploy/kubernetes strictly with Kubernetes' own types
	cd test/manifests && go vet . && go test -count=1 .

oidc: install-test-deps ## log in at the console and the command line with a real OpenID provider (github.com/zitadel/oidc, fetched from Go's proxy)
	cd test/oidc && go vet . && go test -count=1 . -timeout 10m

image: ## run the Dockerfile's build steps, and its programs on a read-only root without privileges (needs root, no container engine)
	./test/image.sh

demo: ## run the whole system on this machine, with nothing installed
	go run ./cmd/dispatcher demo

sbom: build ## write the SBOM of each program, dist/dispatcher.cdx.json and dist/enqueue.cdx.json (CycloneDX), and compare it with Go's build information
	@mkdir -p dist
	@for program in dispatcher enqueue; do \
	  go run $(SBOM) bin -json -std -noserial -notimestamp -version "$$(git describe --tags --always --dirty)" -output dist/$$program.cdx.json bin/$$program || exit 1; \
	done
	go vet -tags sbom ./test
	go test -tags sbom ./test -run SBOM -count=1 -v

reproducible: ## build both programs twice from the commit, in two independent places, and compare their SHA-256
	./test/reproducible.sh

digests: ## check with the registries whether the tags of the pinned images still have the same digest; SKIP if a registry can not be reached
	@sed -n 's/^ *\(image:\|FROM\) \(.*@sha256:[0-9a-f]*\).*/\2/p' Dockerfile docker-compose.yml | while read -r image; do \
	  now=$$(go run $(CRANE) digest "$${image%@*}") || { echo "SKIP: $${image%@*} can not be asked for here"; continue; }; \
	  if [ "$$now" = "$${image#*@}" ]; then echo "the same   $$image"; else echo "MOVED      $$image is $$now now"; fi; \
	done

pin: ## put IMAGE=registry.example.com/spillway@sha256:… into every manifest of deploy/kubernetes
	@echo "$(IMAGE)" | grep -Eq '^[^ @]+@sha256:[0-9a-f]{64}$$' || { echo "say the image by its digest: make pin IMAGE=registry.example.com/spillway@sha256:…"; exit 2; }
	sed -i -E 's#(image: )[^ ]*/spillway[:@][^ ]*#\1$(IMAGE)#' deploy/kubernetes/spillway.yaml deploy/kubernetes/enqueue/*job.yaml

module: ## rename the module to MODULE=… (such as github.com/acme/spillway) before publishing it, so that go install finds it
	@test -n "$(MODULE)" || { echo "say the new path: make module MODULE=github.com/acme/spillway"; exit 2; }
	./test/module.sh $(MODULE)

install-test-deps: ## install redis-server and a C compiler if missing, and PostgreSQL if available (apt-get as root; else say what to install)
	@./test/deps.sh
