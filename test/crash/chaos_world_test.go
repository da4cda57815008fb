package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
	"github.com/waterclock/waterclock/test/witness"
)

const (
	brokers          = 3
	instances        = 3
	partitions       = 12
	targetPartitions = 6
	perSecond        = 300 // requests
	// settleLimit is how long it may take until nothing is left to do, once no further request comes: the due times of
	// the last ones, and a place on the grid.
	settleLimit = settle + grid + 15*time.Second
	// lookEvery is how often what was seen is taken in.
	lookEvery = 100 * time.Millisecond
)

// world is a cluster, the instances that it serves, and what is done to them.
type world struct {
	t        *testing.T
	seed     uint64
	begun    time.Time
	c        *kafkatest.Cluster
	client   *kgo.Client // of somebody whom no fault means
	adm      *kadm.Client
	settings []string // of all instances
	static   bool     // they have names that stay
	spare    string   // a directory for copies and such
	hosts    []*host
	guest    *host // of an instance that comes and goes
	load     *load
	watch    *watch

	sent   int // requests; all are in the log
	rounds int
	wrong  map[string]int // violations by rule
	broken bool           // the last judgement found something lost, doubled, early or altered

	mu     sync.Mutex // guards what follows
	faults []history.Fault
	hits   map[string]int // faults by kind
}

// newWorld starts brokers and instances, and returns when all partitions are served.
func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	t.Logf("-seed %d", seed)
	opts := []kafkatest.Option{
		// With one partition each, which is usual in tests, one broker would have all coordinators.
		kafkatest.WithProperty("transaction.state.log.num.partitions", "6"),
		kafkatest.WithProperty("offsets.topic.num.partitions", "3"),
	}
	for n := 1; n < instances; n++ { // the first one has nothing between itself and its brokers
		opts = append(opts, withProxy(n))
	}
	r := rand.New(rand.NewPCG(seed, 0))
	w := &world{
		t: t, seed: seed, c: kafkatest.Start(t, brokers, opts...), static: r.IntN(2) == 0, spare: t.TempDir(),
		wrong: make(map[string]int), hits: make(map[string]int),
	}
	// brokers stand still
	w.client = w.c.Client(t, kgo.RequestTimeoutOverhead(2*time.Second), kgo.ProduceRequestTimeout(2*time.Second))
	w.adm = kadm.NewClient(w.client)
	requests := w.c.CreateTopic(t, partitions, nil)
	target := w.c.CreateTopic(t, targetPartitions, nil, requests+"-out")
	w.load = &load{r: rand.New(rand.NewPCG(seed, 1)), requests: requests, target: target}
	w.watch = newWatch(w)
	file := eventsOn(&rig.Setup{T: t, Requests: requests})
	w.settings = []string{
		"--config", file, "--session-timeout", session.String(), "--memory", "256MiB",
		"--standbys", fmt.Sprint(r.IntN(2)), "--lanes", fmt.Sprint(1 + r.IntN(2)), "--sub-partitions",
		fmt.Sprint(1 + r.IntN(3)),
		"--transactional-ids", fmt.Sprint(2 + r.IntN(2)), "--firing-interval",
		[]string{"0s", "20ms", "100ms"}[r.IntN(3)],
	}
	t.Logf("settings: static members: %v, %s", w.static, strings.Join(w.settings[2:], " "))
	for n := range instances {
		w.hosts = append(w.hosts, w.newHost(n, n > 0))
	}
	w.guest = w.newHost(instances, false)
	for _, h := range w.hosts {
		h.start()
	}
	await.Until(t, startLimit, "all partitions are served", w.served)
	w.begun = time.Now()
	return w
}

// served reports whether the instances are ready and have all partitions between them.
func (w *world) served() bool {
	n := 0
	for _, h := range w.hosts {
		live := h.p.Live()
		if live < 0 {
			return false
		}
		n += live
	}
	return n == partitions
}

// round is a storm and the calm behind it. Then what was seen is judged.
func (w *world) round(storm time.Duration) {
	w.rounds++
	stream := rig.StartStream(w.t, w.client, perSecond, w.load.next)
	w.watch.begin()
	w.watch.storm()
	stormy, end := context.WithTimeout(w.t.Context(), storm)
	defer end()
	over := w.storm(stormy)
	w.look(func() bool { return done(over) })
	<-over
	began := time.Now()
	w.look(func() bool { return time.Since(began) > settle/2 })
	w.watch.calm()
	w.look(func() bool { return time.Since(began) > calm })
	w.sent += stream.Stop()
	w.watch.end()
	last := w.load.lastOfShared()
	rig.Send(w.t, w.client, last...)
	w.sent += len(last)
	if w.settle() {
		w.judge()
	}
}

func done(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// look takes in what is seen until something is so, and restarts instances that have ended by themselves.
func (w *world) look(until func() bool) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !until() {
		<-tick.C
		w.watch.take()
		for _, h := range w.hosts {
			h.revive()
		}
	}
}

// revive starts an instance that has ended by itself, as any supervisor does. It says so: none should.
func (h *host) revive() {
	if !h.mu.TryLock() {
		return
	}
	defer h.mu.Unlock()
	if h.runs() {
		return
	}
	said := strings.Split(strings.TrimSpace(h.p.Output()), "\n")
	h.w.t.Logf("%s has ended by itself, with %d: %s", h.name(), h.p.Exit(time.Second), said[len(said)-1])
	h.w.note(history.Fault{Kind: "ended by itself", On: h.name(), From: time.Now(), To: time.Now()})
	h.start()
}

func (w *world) note(f history.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, f)
	w.hits[f.Kind]++
}

// settle waits until nothing is left to do. It reports whether that came.
func (w *world) settle() bool {
	limit := settleLimit + w.watch.settle() - settle
	until := time.Now().Add(limit)
	unsettled := ""
	w.look(func() bool {
		if unsettled = w.watch.unsettled(); unsettled == "" && !w.served() {
			unsettled = "not all partitions are served"
		}
		if unsettled == "" { // by what has been read; now by all that there is
			unsettled = w.watch.readAll()
		}
		return unsettled == "" || time.Now().After(until)
	})
	if unsettled != "" {
		w.wrong["liveness"]++
		w.t.Errorf("not settled %s after the last request, and %s after the last fault: %s", limit,
			limit+calm, unsettled)
		w.keep(nil)
	}
	return unsettled == ""
}

// judge judges what was seen since the last time, and forgets what is over.
func (w *world) judge() {
	for _, h := range w.hosts {
		w.watch.account(h)
	}
	w.watch.watched.Lags("group-of-" + w.load.requests)
	w.watch.take()
	w.mu.Lock()
	w.watch.history.Faults, w.watch.history.Scope.Settle = w.faults, w.watch.settle()
	w.mu.Unlock()
	w.say(witness.Check(w.watch.history))
	if w.watch.requests != w.sent {
		w.t.Errorf("%d requests were acknowledged, and %d are in the log", w.sent, w.watch.requests)
	}
	w.watch.forget()
}

// say fails the test if something is wrong, and keeps the history.
func (w *world) say(wrong []history.Violation) {
	for _, v := range wrong {
		w.wrong[v.Rule]++
	}
	exact := slices.DeleteFunc(slices.Clone(wrong), func(v history.Violation) bool { return v.Rule == "liveness" })
	rig.Violations(w.t, exact)
	w.broken = len(exact) > 0
	if late := len(wrong) - len(exact); late > 0 { // a busy machine may be why
		w.t.Errorf("%d times something came later than %s: %s", late, w.watch.settle(),
			wrong[slices.IndexFunc(wrong, func(v history.Violation) bool { return v.Rule == "liveness" })])
	}
	if len(wrong) > 0 {
		w.keep(wrong)
	}
}

// keep keeps the history.
func (w *world) keep(wrong []history.Violation) {
	more := map[string]string{"ledger.txt": w.ledger()}
	for _, h := range w.hosts {
		more[h.name()+".log"] = h.p.Output()
	}
	rig.Keep(w.t, *keepFlag, &w.watch.history, wrong, more)
}

// finish stops the instances in order, judges their stores, and prints the ledger.
func (w *world) finish() {
	for _, h := range w.hosts {
		h.p.Term()
	}
	for _, h := range w.hosts {
		if code := h.p.Exit(time.Minute); code != 0 {
			w.t.Errorf("%s ends with %d", h.name(), code)
		}
	}
	w.say(w.watch.stored())
	w.t.Logf("-seed %d:\n%s", w.seed, w.ledger())
}
