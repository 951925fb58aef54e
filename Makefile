# vapp. `make` prints the targets; `make up` and `make test` are all a newcomer needs.

PROFILE  ?= profiles/smollm2.cue
FUZZTIME ?= 4s
# Packages whose goroutines meet: what the race detector watches.
RACE := ./engine ./engine/runner ./engine/turns ./appliance ./appliance/api/... ./appliance/auditlog ./appliance/batch ./appliance/chat ./appliance/chat/pooling \
	./appliance/front ./appliance/hub ./appliance/kvevents ./appliance/media/load ./appliance/metrics ./appliance/page ./appliance/responses ./appliance/traces ./tools/bench/... ./tools/console ./tools/sse
# Those, and packages that one goroutine uses at a time.
RACE_ALL := ./engine ./engine/sched ./engine/kv ./engine/runner ./engine/turns ./appliance/... ./tools/...
# Breaks the code in small ways and sees whether a test fails.
MUTANTS := go run github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
# The tags of what runs apart from the other tests.
TAGS := clients,browser,streams,bundle
# The go command with what the tag cuda needs, where that can be built.
ifeq ($(shell uname -sm),Linux x86_64)
CUDA_GO := scripts/cuda-run.sh go
CUDA_VET = $(CUDA_GO) vet -tags cuda,$(TAGS)
# Every build has its flags, so that the C of kernels/cpu is compiled once with and without the tag.
CUDA_DIR := $(shell mkdir -p .cache/cuda && cd .cache/cuda && pwd -P)
export CGO_CFLAGS ?= -g -O2
export CGO_LDFLAGS ?= -g -O2
CGO_CFLAGS += -I$(CUDA_DIR)/compat -I$(CUDA_DIR)/include
CGO_LDFLAGS += -L$(CUDA_DIR)/link
# CUDA=1 builds for NVIDIA GPUs too, CUDA= does not; by itself where there is one, or its kernels.
CUDA ?= $(if $(wildcard /dev/nvidiactl /dev/dxg .cache/cuda/kernels.txt),1)
else
CUDA_GO := @echo "not run, the tag cuda is for Linux on x86-64:" go
override CUDA :=
endif
# No debugger's data in what is linked, which takes half of a link's time; the target vet vets.
export GOFLAGS += -trimpath -ldflags=-w -vet=off
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)

.DEFAULT_GOAL := help
# One thing at a time: two cores are all there may be, and the go command and
# cargo fill them by themselves.
.NOTPARALLEL:
.PHONY: help tools modules native build kernels kernels-check test-kernels gpu-bundle gpu-check emulated-driver test-cuda test-arm64 numa-check model up check test vet fmt cross cross-all clients test-clients browser screenshots race fuzz ci soak golden release release-check bench bench-real bench-stream bench-traces bench-peer compare-llamacpp bench-lora bench-media bench-ranks bench-speed bench-scale routers kubernetes man docs size lint headers

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: build model ## get what is missing, build, and serve PROFILE (the default model)
	bin/vapp up $(PROFILE)

build: native $(if $(CUDA),embedded-kernels) ## build bin/vapp; with CUDA where a GPU is or `make kernels` was run; CUDA=1, CUDA= choose
	@$(if $(CUDA),:,echo "build: without CUDA, there is no GPU here; make build CUDA=1 builds with it")
	$(if $(CUDA),$(CUDA_GO),go) build $(if $(CUDA),-tags cuda) -ldflags "-w -X main.version=$(VERSION) -extldflags=-Wl,--gc-sections" -o bin/vapp ./cmd/vapp

model: ## fetch the default model into models/
	@scripts/model.sh

kernels: ## compile the CUDA kernels and print their registers, shared memory and spills
	@scripts/kernels.sh

kernels-check: ## build the CUDA kernels twice: equal bytes, no spilling, registers as docs/kernel-registers.md has them
	@scripts/kernels.sh check
	@scripts/kernels.sh embed
	go test -count=1 -run TestRegistersPage ./kernels/cuda

test-kernels: ## the CUDA kernels on the host under AddressSanitizer
	VAPP_CUDA_SANITIZE=1 go test -count=1 -timeout 1h ./kernels/cuda/...

gpu-bundle: native ## what gpu-check needs on an H100 or H200 without Go and network: .cache/gpu-bundle.tar.xz, at most 35 MiB; VAPP_CUDA_ARCHS names other GPUs
	@scripts/gpu-bundle.sh

gpu-check: export VAPP_BUNDLE_ALL = 1 # this machine may have any GPU
gpu-check: gpu-bundle ## everything that needs a GPU: correctness (RUN=A, 8 minutes), speed (B, 9), serving (C, 9): report.md and results.json in OUT
	.cache/gpu-bundle/gpu-check --out $(or $(OUT),.cache/gpu-check) $(RUN)

emulated-driver: ## the CUDA driver without a GPU: VAPP_LIBCUDA=$PWD/.cache/emulation/libcuda.so runs a binary on it
	@go test -count=1 -run TestDriver -v ./kernels/cuda/cudatest | grep libcuda

test-cuda: native emulated-driver ## the scripts with a binary that has CUDA, without a driver and on the emulated one; there ranks and the bundle of gpu-check
	$(CUDA_GO) test -tags cuda -count=1 -run 'TestScript/(cuda|cuda_up|cuda_several|cuda_ranks|help|up)$$' ./cmd/vapp
	$(CUDA_GO) test -tags cuda -count=1 -timeout 10m -run TestGoldenRanksCUDA ./engine/models
	$(CUDA_GO) test -tags bundle -count=1 -timeout 30m -run TestBundle -v ./tests/gpu

test-arm64: native ## Linux on ARM, cross-built and emulated: kernels on three processors, goldens, an answer; says what it lacks and is not run
	@scripts/arm64.sh test

numa-check: native ## a machine with two NUMA nodes under qemu: each node has its panels and threads (needs qemu-system-x86, busybox-static, cpio, a kernel)
	@scripts/numa-check.sh

# The flags of `make test`, so that both share the build cache.
check: native fmt ## vet, format and the unit tests without the long ones, in two minutes: before each commit
	go vet -tags invariants ./...
	go test -short -tags invariants -timeout 10m ./...

test: native model-if-there vet fmt ## every test that needs no GPU: unit, golden, script, import law
	go test -tags invariants -timeout 20m ./...
	$(CUDA_GO) test -tags cuda ./engine/backend/cuda/... ./engine/backend/nccl
	$(CUDA_GO) test -tags cuda -run CUDA ./engine ./appliance
	go test -run TestSteadyHeap ./engine # what verifying allocates is not counted here

lint: native vet fmt headers ## go vet, gofmt, the C headers, and staticcheck where it is installed
	@if command -v staticcheck >/dev/null; then staticcheck ./...; \
	else echo "lint: staticcheck is not on the path: not run"; fi

race: native ## the race detector on the packages whose goroutines meet
	go test -race -short -timeout 30m $(RACE)

fuzz: native ## fuzz every target for FUZZTIME (4s)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

clients: build model openmpi ## the clients that people have (Go, Python, Node) and 64 streams against the real server
	@scripts/clients.sh
	go test -tags clients -count=1 -timeout 40m -v ./tests/clients

test-clients: clients

browser: build model ## the page at / and those of vapp plan --html in headless Chromium, with a scripted model and with the default one
	@scripts/browser.sh go test -tags browser -count=1 -timeout 15m -v -run Test ./appliance/page ./appliance/plan/picture
	@scripts/browser.sh go test -tags clients,browser -count=1 -timeout 15m -v -run TestPage ./tests/clients

screenshots: ## pictures of the page at / with a scripted model, in OUT (.cache/screenshots)
	@SCREENSHOTS=$(abspath $(or $(OUT),.cache/screenshots)) scripts/browser.sh go test -tags browser -count=1 -run TestScreenshots ./appliance/page

ci: FUZZTIME := 2s
ci: openmpi test headers test-cuda cross clients browser race fuzz ## what continuous integration runs, in under an hour
	@scripts/kernels.sh errors
	@scripts/kernels.sh spills 90a # all architectures, and twice: make soak

# Without cgo the tests use the packages that scripts/kubernetes.sh compiled.
kubernetes: build model openmpi emulated-driver ## the chart, vapp manifest and rolling changes on a real control plane, as root; builds it from its modules the first time (ten minutes)
	@scripts/kubernetes.sh
	$(CUDA_GO) build -tags cuda -o bin/vapp-cuda ./cmd/vapp
	cd tests/kubernetes && CGO_ENABLED=0 go test -count=1 -timeout 60m -v ./chart ./cluster

soak: build model kernels-check ## hours: long fuzzing, races over repetitions, mutants, load on the real server
	FUZZTIME=5m scripts/fuzz.sh
	@$(MAKE) cross-all
	go test -tags soak,invariants -count=1 -timeout 2h -run 'TestSoak|TestGreedy|TestRanks|TestImages' -v ./engine
	go test -tags soak -count=1 -timeout 1h -run TestSuite ./engine/backend/ref ./engine/backend/cpu
	$(CUDA_GO) test -tags cuda,soak -count=1 -timeout 2h -run TestSuite ./engine/backend/cuda
	$(CUDA_GO) test -tags cuda,soak -count=1 -timeout 2h -run 'TestImages.*CUDA' -v ./engine
	$(CUDA_GO) test -tags bundle,soak -count=1 -timeout 1h -run TestBundle -v ./tests/gpu
	VAPP_GOLDEN=all $(CUDA_GO) test -tags cuda -count=1 -timeout 2h -run 'TestGoldenCUDA|TestGoldenRanksCUDA' -v ./engine/models
	go test -race -shuffle=on -count=5 -timeout 2h $(RACE_ALL)
	go test -tags soak -count=1 -timeout 2h -run TestMutants -v ./kernels/cuda
	@for p in kv sched sample; do $(MUTANTS) unleash --workers 1 --timeout-coefficient 5 --threshold-efficacy 70 ./engine/$$p || exit 1; done
	go test ./engine -count=1 -timeout 4h -run TestLongContext -long 131072
	go test -tags clients,soak -count=5 -timeout 4h -run 'TestLoad|TestReload|TestTerminate' ./tests/clients
	go test -tags clients,soak -count=1 -timeout 4h -run TestBodies -v ./tests/clients
	go test -tags clients -count=1 -timeout 2h -run TestStructured -v ./tests/clients -args -structured 1000
	go test ./appliance -count=1 -timeout 1h -run TestMaskTime -v -masks 100
	@$(MAKE) routers
	go test -tags soak -count=1 -timeout 1h -run 'TestSwapStorm|TestMediaSwap' -v ./appliance
	go test -tags soak -count=1 -timeout 1h ./appliance/chat/dialect
	go test -tags soak -count=1 -run 'TestPython|TestTwin' -v ./appliance/kvevents
	go test -tags soak -count=1 -run TestPrometheus -v ./appliance/metrics
	@$(MAKE) kubernetes
	@scripts/ranks-soak.sh
	@scripts/examples-ranks.sh
	@scripts/bench-real.sh
	@$(MAKE) test-arm64
	@scripts/numa-check.sh
	@$(MAKE) release-check

release: native ## binaries, .deb, .rpm, OCI image, SBOM and checksums into OUT (.cache/release); with CUDA where its kernels are, or CUDA=1
	@VERSION="$(VERSION)" CUDA="$(CUDA)" scripts/release.sh $(OUT)

release-check: release model ## two builds are equal; the .deb in a clean root and the image answer (as root, ten minutes)
	@scripts/release-check.sh

golden: model ## record the reference logits again (needs Python and a network)
	scripts/golden.sh

bench: build model ## tokens/s beside this machine's limits, a model of 1 to 2 GB for each family
	bin/vapp bench engine profiles/smollm2.cue
	bin/vapp bench engine --prompt-len 64 --output-len 32 --repeat 2 tests/bench/*.cue

bench-real: build ## the published models with random weights, cut in layers to fit 16 GB
	@scripts/bench-real.sh

bench-stream: native model ## what 256 streams take of a step beside the model: JSON, detokenizing, sockets
	go test -tags streams -count=1 -timeout 20m -v -run TestStreamingCost ./appliance

bench-traces: native model ## what traces of every request cost at 64 streams: rounds with and without, in turns
	go test ./appliance/traces -run '^$$' -bench .
	go test -tags streams -count=1 -timeout 20m -v -run TestTracesCost ./appliance

bench-peer: build model ## vapp beside llama.cpp and PyTorch on the same files: writes docs/performance/<cpu>.md and docs/performance.md; PART=llama1b-q8_0,streams measures those, MINUTES=25 leaves out what takes longer
	@scripts/bench-peer.sh "$(PART)"

compare-llamacpp: native ## logits and greedy tokens of vapp and llama.cpp on the same GGUF files, every family and block type: writes the tables of docs/gguf.md; FAMILY=tiny-qwen3 compares that one (needs Python with torch)
	@scripts/compare-llamacpp.sh $(FAMILY)

bench-media: native ## images of 12 megapixels decoded and resized by vapp and by Pillow, in turns on one thread (needs Python with venv); then gemma-4-26B's tower with dummy weights
	@mkdir -p .cache/media
	go test -c -o .cache/media/media.test ./appliance/media/load
	@[ -x .cache/media-venv/bin/python ] || { python3 -m venv .cache/media-venv && .cache/media-venv/bin/pip install -q pillow==13.0.0 numpy; }
	.cache/media-venv/bin/python scripts/bench_media.py .cache/media .cache/media/media.test
	go test ./engine/models -run '^$$' -bench TowerCPU -benchtime 2x -timeout 1h -v

bench-ranks: build openmpi ## two ranks of one thread beside one rank of two, the time of collectives and of rank 0's control work: writes the tables of docs/ranks.md
	@python3 scripts/bench_ranks.py

bench-lora: native ## 16 streams with eight LoRA adapters of rank 16 beside 16 without, in turns
	go test ./engine -run '^$$' -bench Adapters -benchtime 15x

bench-speed: build model ## the plan's speed beside what the engine does: writes the tables of docs/speed.md; goes on where it ended, FRESH=1 measures all again
	@FRESH="$(FRESH)" ONLY="$(ONLY)" python3 scripts/bench_speed.py

bench-scale: build model ## the simulation of bench replicas beside what a server does: three rates, two lengths
	@python3 scripts/bench_scale.py

routers: build model ## vapp behind the endpoint picker and vllm-router; KUBERNETES_BIN (.cache/kubernetes/bin) has etcd and kube-apiserver
	@scripts/routers.sh

man: native ## write the man pages of all commands to OUT (.cache/man)
	go run ./cmd/vapp man $(or $(OUT),.cache/man)

docs: ## write the generated pages and deploy/kustomize: docs/reference, planning-figures.md, api-coverage.md, capacity.md, kernels.md, cuda-drivers.md, gpu-speed.md, numerics.md and models.md
	go test ./schema -count=1 -run TestReferencePage -update
	go test ./cmd/vapp -count=1 -run 'TestCLIPage|TestKustomize' -update
	go test ./appliance/metrics -count=1 -run TestReferencePage -update
	go test ./kernels/cuda -count=1 -run 'TestKernelsPage|TestDriversPage' -update
	go test ./appliance/plan -count=1 -run TestGPUSpeedPage -update
	go test ./tools/compat -count=1 -run TestDocs -update
	go test ./appliance/api -count=1 -run 'TestCoverage|TestRoutesPage' -update
	go test ./tools/compat -count=1 -run TestMeasuredCapacity -update
	VAPP_GOLDEN=all go test ./engine/models -count=1 -timeout 60m -run 'TestGolden|TestFormats|TestForms' -update
	go test ./engine/checkpoint -count=1 -run TestGGUFArchitectures -update
	go test ./appliance/starter -count=1 -run TestModelsPage -update

size: ## print the sizes of the tree: a thermometer, not a gate
	@scripts/size.sh

# The steps that the targets above share.

tools:
	@scripts/check-tools.sh

# All of them at once, the tests' own included: what comes later works offline.
modules: tools
	@go mod download || go list -deps -test ./... >/dev/null || \
	{ echo "vapp: the Go modules are not all here and cannot be fetched; the first build needs a network" >&2; exit 1; }

native: modules
	@scripts/build-native.sh

# What starts and connects ranks on CPUs; the tests that need it are skipped without.
.PHONY: openmpi
openmpi:
	@scripts/openmpi.sh

.PHONY: embedded-kernels
embedded-kernels:
	@scripts/kernels.sh embed

.PHONY: model-if-there
model-if-there:
	@scripts/model.sh || echo "test: without the default model the tests that need it are skipped, and say so" >&2

vet:
	go vet -tags invariants ./...
	$(or $(CUDA_VET),go vet -tags $(TAGS)) ./engine ./engine/models ./engine/backend/cuda/... ./appliance ./appliance/page ./appliance/plan/picture ./tests/...
	$(if $(CUDA_VET),$(subst $(TAGS),soak,$(CUDA_VET)) ./engine) # of soak only

headers: ## check that each C header of kernels/cpu compiles alone, for each of its targets
	@scripts/check-headers.sh

fmt:
	@out=$$(git ls-files -co --exclude-standard -- '*.go' | while read -r f; do [ ! -f "$$f" ] || echo "$$f"; done | xargs gofmt -l); \
	[ -z "$$out" ] || { echo "not as gofmt would have it:"; echo "$$out"; exit 1; }

cross:
	@scripts/cross.sh

cross-all:
	@scripts/cross.sh all
