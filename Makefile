# What takes long: docs/internals/BREAKING.md, docs/DEPLOY.md. Everything else is `go test ./...` and .ci/run.
.PHONY: slow sim planted soak oracles apply

SEEDS ?= 1000
TOTALS ?= $(CURDIR)/test/simulation/testdata/totals.json
FOR ?= 1h
EXPRESSIONS ?= 2000
STARTS ?= 5
SEED ?= 0

slow: ## each test at its full size, autoscaling too: an hour of the whole machine
	WATERCLOCK_SLOW_TESTS=all WATERCLOCK_REQUIRE_KAFKA=1 go test -count=1 -timeout 60m -p 4 ./...
	WATERCLOCK_SLOW_TESTS=all WATERCLOCK_REQUIRE_KAFKA=1 go -C test test -count=1 -timeout 60m -p 4 ./...
	WATERCLOCK_SLOW_TESTS=1 WATERCLOCK_REQUIRE_KAFKA=1 go -C deploy/scaling test -count=1 -timeout 30m ./...

sim: ## whole clusters in bubbles, from fresh seeds: make sim SEEDS=10000
	go -C test test -count=1 -timeout 0 ./simulation -run '^TestSimulation$$' -v -seeds $(SEEDS) -totals $(TOTALS)

planted: ## bugs in the product that must not go unseen
	go -C test test -count=1 -timeout 0 -tags planted ./simulation -run '^TestPlanted$$' -v

soak: ## processes and real brokers under faults: make soak FOR=8h
	go -C test test -count=1 -timeout 0 ./crash -run '^TestSoak$$' -v -for $(FOR)

oracles: ## cron and periods against other libraries, which are fetched: make oracles EXPRESSIONS=200 SEED=17
	WATERCLOCK_SLOW_TESTS=all WATERCLOCK_REQUIRE_CLIENTS=1 go -C test test -count=1 -timeout 0 ./oracles -v \
		-expressions $(EXPRESSIONS) -starts $(STARTS) -seed $(SEED)

apply: ## the chart and the manifests, taken by a real kube-apiserver and its controllers
	go -C deploy/apply vet ./...
	go -C deploy/apply test -count=1 -timeout 3h -v ./...
