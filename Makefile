# What the project needs beyond Go is installed by the targets that need it.
GO          ?= go
STATICCHECK  = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK  = golang.org/x/vuln/cmd/govulncheck@v1.9.0
# A later one needs a module that the proxy does not have.
GORELEASER   = github.com/goreleaser/goreleaser/v2@v2.15.0
# The product and its tests compile for these, also where an int has 32 bits. Nobody runs the tests there.
PLATFORMS    = linux/386 linux/arm windows/amd64 darwin/arm64
FUZZTIME    ?= 20s
RUN         ?= ^TestDrill
# make chaos FOR=1h SEED=7 STORE=mysql SERVERS=joined FAULTS=kill,freeze CHAOS='-json FILE'
FOR         ?= 5m
STORE       ?= jetstream
SERVERS     ?= embedded
# make mutations JOBS=8 MUTATION=limit MUTATED=./allocator
JOBS        ?= 2
MUTATION    ?= .
MUTATED     ?= $(sort $(dir $(shell grep -rl --include='*_test.go' '^//go:build mutations$$' .)))
# Tests need none of their files after a power cut, so they keep them in memory where that has room. On a disk that other
# programs keep busy, each write that is forced to it can take long, and tests wait in vain.
SCRATCH     := $(shell [ "$$(df -Pk /dev/shm 2>/dev/null | awk 'END {print $$4}')" -gt 4000000 ] 2>/dev/null && echo /dev/shm || echo "$${TMPDIR:-/tmp}")
# The fuzz targets, as package:name.
FUZZ         = bus/idspace:FuzzCheckTag internal/wire:FuzzParseRequest internal/wire:FuzzParseReply bus/events:FuzzParse bus/generator:FuzzDecode bus/gateway:FuzzParseCount bus/gateway:FuzzV1 \
               allocator:FuzzParseMark allocator:FuzzAccept bus/kvstore:FuzzTagRecord \
               bus/kvstore:FuzzDecodeWorker bus/kvstore:FuzzDecodeMaster bus/kvstore:FuzzParseBackup allocator/opaque:FuzzParseDomain \
               snowflake:FuzzReadSlot snowflake:FuzzDecode bus/installation:FuzzCheckVersion schema:FuzzParseDSN snowflake/zookeeper:FuzzDecodeNode \
               cmd/leaf:FuzzParseTagFile

.PHONY: run build deps check test chaos drills compat lint vuln bench fuzz mutations release release-check chart clean

run: ## a generator with tag order
	$(GO) run ./cmd/leaf serve --tag order

build: ## bin/leaf
	$(GO) build -trimpath -ldflags='-s -w' -o bin/leaf ./cmd/leaf

# The servers that tests start, where they are missing.
deps:
	@tests/install.sh

# Not the packages whose tests start processes. Go's cache skips what has not changed.
check: ## tests that start no process, without the race detector (half a minute, later only what changed)
	@LEAF_TEST_WORLDS=300 $(GO) test -vet=off -p 4 $$($(GO) list ./... | grep -vE 'leafbus/(tests|cmd|schema|snowflake/zookeeper)(/|$$)')
# Whether the edits of all mutations still fit the code; what they break is for `make mutations`.
	@$(GO) test -tags mutations -short -vet=off -count=1 -p 4 -run TestMutations $(MUTATED)

# Never from the cache: it does not know that tests run the program. The packages of the library have the race detector,
# except one of pure functions. The program that those below tests run has not: half of their time would be its start. Most
# tests wait more than they compute, so several packages run side by side. `make lint` vets.
test: deps ## every test but drills: the library with the race detector, then the program
	$(GO) build -race ./...
	TMPDIR=$(SCRATCH) $(GO) test -race -vet=off -count=1 -timeout 9m -p 3 $$($(GO) list ./... | grep -vE 'leafbus/(tests|allocator/opaque)(/|$$)')
	TMPDIR=$(SCRATCH) $(GO) test -vet=off -count=1 -timeout 9m -p 3 ./allocator/opaque ./tests/...
# That of snowflakes runs on one goroutine at a time, and its coroutines now and then crash the race
# detector itself. That of tags would try few of its worlds in the same time.
	$(GO) test -vet=off -count=1 -run TestSimulation ./snowflake ./allocator

# CHAOS=-known runs what is known to break a promise, and CHAOS='-broken all' the deliberate faults of the product.
chaos: deps ## faults strike real processes under load; the first broken promise ends it (FOR, SEED, STORE, SERVERS, FAULTS, CHAOS)
	TMPDIR=$(SCRATCH) $(GO) run ./tests/chaos -for $(FOR) -store $(STORE) -servers $(SERVERS) $(if $(SEED),-seed $(SEED)) $(if $(FAULTS),-faults $(FAULTS)) $(CHAOS)

# Drills assert safety and print times. They are no part of `make test`, because each may need a minute.
drills: deps ## attacks on real processes that need minutes, root or other programs (RUN=REGEXP takes some, SKIP=REGEXP leaves some out)
	@tests/install.sh drills
	$(GO) test -tags drills -count=1 -timeout 90m -run '$(RUN)' -skip '$(SKIP)' -p 1 -v ./tests/drills ./tests/clients ./snowflake/zookeeper

# The versions of nats-server come through the Go module proxy.
compat: ## generators on real NATS clusters of the oldest and the newest version (some minutes)
	$(GO) test -tags compat -count=1 -timeout 20m -run '^TestCompat' -v ./tests/drills

lint: ## gofmt, go vet (for other platforms, too), staticcheck, and govulncheck where its database can be reached
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'run gofmt -w .'; exit 1; }
	$(GO) vet -tags 'mutations drills compat' ./...
	@set -e; for p in $(PLATFORMS); do echo "go vet for $$p"; \
		GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 $(GO) vet ./cmd/... ./bus/... ./allocator/... ./schema/... ./snowflake/... ./internal/...; done
	$(GO) run $(STATICCHECK) -tags 'mutations drills compat' ./...
	@$(MAKE) --no-print-directory vuln

# Where the tool or its database cannot be fetched, that is said and is no failure.
vuln:
	@out=$$($(GO) run $(GOVULNCHECK) ./... 2>&1); status=$$?; echo "$$out"; \
	if [ $$status -ne 0 ] && echo "$$out" | grep -qE 'Forbidden|not available|fetching vulnerabilities|no such host|connection refused|dial tcp'; then \
		echo 'govulncheck cannot be had from here: vulnerabilities are not checked'; \
	else exit $$status; fi

bench: deps ## speed, beside baselines
	$(GO) run ./tests/bench

fuzz: ## each decoder for FUZZTIME
	@set -e; for f in $(FUZZ); do \
		echo "$${f#*:}"; $(GO) test ./$${f%%:*} -run='^$$' -fuzz="^$${f#*:}$$" -fuzztime=$(FUZZTIME); done

# Each one leaves some 10 MB in Go's build cache: `go clean -cache` after a whole run.
mutations: deps ## breaks each promise on purpose; a test must find it (an hour, 15 GB of disk; MUTATION=REGEXP takes some)
	TMPDIR=$(SCRATCH) $(GO) test -tags mutations -vet=off -count=1 -timeout 90m -parallel $(JOBS) -p 1 -run 'TestMutations/$(MUTATION)' -v $(MUTATED)

# A module of its own: the product requires nothing of Helm or Kubernetes.
chart: ## the Helm chart: rendered, compared with the types of Kubernetes, and its pods run as processes
	cd tests/helm && $(GO) vet . && TMPDIR=$(SCRATCH) $(GO) test -count=1 -timeout 9m .

# Of a commit with a tag v…, with GITHUB_TOKEN: it also makes a draft of a release on GitHub. The first run builds the
# tool, which takes some minutes. It reads git, so run it in a clone without changes.
release: ## dist: archives, a Debian package, checksums, SBOMs
	$(GO) run $(GORELEASER) release --clean $(if $(GITHUB_TOKEN),,--snapshot --skip=publish)

release-check: ## two releases of this commit have equal bytes, and what they install works
	@tests/release.sh

clean:
	rm -rf bin dist
