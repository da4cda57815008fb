package api

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	randomPartitions = 6
	randomMembers    = 3
	randomCallers    = 8
	idsPerPrefix     = 24
	// moveGrace is how far from what was seen of a move a refusal may be: it is looked at now
	// and then, and what instances know of each other is some hundred milliseconds old.
	moveGrace = 2 * time.Second
	// moveLimit is how long a move may take: a session's end, and then some on a busy machine.
	moveLimit = 2 * limit
)

// prefixes are those of the IDs; some need encoding in a path.
var prefixes = []string{"a-", "b/", "ü ?", "d%2F", "e+&="}

var randomSeed = flag.Uint64("random.seed", 0, "seed of TestRandomOperations; 0: of the clock")

// member is an instance, as a process.
type member struct {
	name   string
	p      *rig.Process
	asked  *asked
	killed time.Time // guarded by setup.mu
	slept  []move    // when its process was stopped where it stood; guarded by setup.mu
}

func (m *member) String() string { return m.name }

// setup is what the test knows.
type setup struct {
	requests, target, key string
	seeds                 []string
	ids                   []string
	fixedCalls            []fixedCall

	mu      sync.Mutex // guards what follows
	members []*member  // that have not been killed
	all     []*member
	moves   []move
	sources map[string]string
	ops     []*op
	jobs    map[string]bool
	running []*op    // jobs that were started
	called  int      // of the fixed calls
	paused  []string // IDs that were paused last
	letter  []kafkatest.Received
	random  *rand.Rand
}

// move is a time in which partitions are on their way.
type move struct{ from, to time.Time }

// 10,000 random operations (fewer where nobody wants to wait), asked of a random one of three
// instances each time, while instances are killed and others join: every answer is possible by
// what a plain client reads in the topics, what was said to be written is there, what was said
// not to be is not, and only while partitions move a call is answered 503.
func TestRandomOperations(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	rig.Binary(t)
	seed := *randomSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-random.seed=%d", seed)
	operations, rounds, perSecond := 700, 1, 60
	if runs.Slow() {
		operations, rounds, perSecond = 10_000, 6, 120
	}
	w := newSetup(t, c, seed)
	topics := kafkatest.Collect(t, c, w.requests, w.target, w.requests+".waterclock.dead-letters")
	for range randomMembers {
		w.join(t)
	}
	w.settled(t)
	stop := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { w.watch(stop, topics) })
	var callers sync.WaitGroup
	churned := make(chan struct{})
	pace := time.NewTicker(time.Second / time.Duration(perSecond))
	defer pace.Stop()
	cl := c.Client(t)
	for i := range 10 { // over HTTP nothing becomes a dead letter
		rig.Send(t, cl, &kgo.Record{
			Topic: w.requests, Key: fmt.Append(nil, "bad/", i), Value: fmt.Append(nil, "bad-kafka-", i),
			Headers: []kgo.RecordHeader{{Key: "timer-after", Value: []byte("soon")}, {Key: "timer-target-topic",
				Value: []byte(w.target)}},
		})
	}
	for i := range randomCallers {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		callers.Go(func() { w.calls(t, r, cl, operations, pace.C, churned) })
	}
	w.churn(t, rounds)
	close(churned)
	callers.Wait()
	close(stop)
	background.Wait()
	w.rest(t)
	topics.Quiet(time.Second)
	w.check(t, topics.Records(), operations)
}

func newSetup(t *testing.T, c *kafkatest.Cluster, seed uint64) *setup {
	w := &setup{
		requests: c.CreateTopic(t, randomPartitions, nil), key: keyFile(t), seeds: c.Seeds(),
		sources: map[string]string{}, jobs: map[string]bool{}, random: rand.New(rand.NewPCG(seed, 1<<32)),
	}
	w.target = c.CreateTopic(t, 2, nil, w.requests+"-target")
	w.fixedCalls = fixedCalls(w.requests, w.target)
	for _, prefix := range prefixes {
		for i := range idsPerPrefix {
			w.ids = append(w.ids, fmt.Sprintf("%s%02d", prefix, i))
		}
	}
	return w
}

// join starts another instance.
func (w *setup) join(t *testing.T) {
	addr := rig.FreeAddr(t)
	m := &member{
		name:  fmt.Sprint("instance ", len(w.all)),
		asked: &asked{client(t), "http://" + addr},
		p:     rig.Start(t, rig.Arguments(w.seeds, w.requests, t.TempDir(), "--api", addr, "--api-key-file", w.key)...),
	}
	await.Until(t, limit, "it listens", func() bool { return m.asked.call(t, "GET", "/docs", "").status != 0 })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members, w.all = append(w.members, m), append(w.all, m)
}

// live is how many live partitions the instances own together, and whether each has its share.
func (w *setup) live() (n int, shared bool) {
	w.mu.Lock()
	members := w.members
	w.mu.Unlock()
	shared = true
	for _, m := range members {
		_, body := m.p.Readyz()
		own := strings.Count(body, `"live"`)
		n += own
		shared = shared && own == randomPartitions/len(members)
	}
	return n, shared
}

// settled waits until every partition is live, and each instance has its share.
func (w *setup) settled(t *testing.T) {
	t.Helper()
	await.Until(t, moveLimit, "all partitions are live again", func() bool {
		n, shared := w.live()
		return n == randomPartitions && shared
	})
}

// moving notes a move while do has it happen.
func (w *setup) moving(do func()) {
	w.mu.Lock()
	i := len(w.moves)
	w.moves = append(w.moves, move{time.Now(), time.Now().Add(time.Hour)})
	w.mu.Unlock()
	do()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moves[i].to = time.Now()
}

// churn takes instances away and has others join. One is killed (SIGKILL), one is stopped where
// it stands until others have its partitions, and then goes on, and one ends in order.
func (w *setup) churn(t *testing.T, rounds int) {
	for round := range rounds {
		await.For(t, 2*time.Second)
		switch round % 3 {
		case 0:
			w.leaves(t, (*rig.Process).Kill)
		case 1:
			w.sleeps(t)
			continue
		case 2:
			w.leaves(t, func(p *rig.Process) { p.Term(); p.Exit(limit) })
		}
		await.For(t, time.Second)
		w.moving(func() {
			w.join(t)
			w.settled(t)
		})
	}
	await.For(t, 2*time.Second)
}

// away has an instance not be asked any more.
func (w *setup) away() *member {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.random.IntN(len(w.members))
	m := w.members[i]
	m.killed = time.Now()
	w.members = append(append([]*member{}, w.members[:i]...), w.members[i+1:]...)
	return m
}

func (w *setup) leaves(t *testing.T, how func(*rig.Process)) {
	w.moving(func() {
		m := w.away()
		how(m.p)
		w.settled(t)
	})
}

// sleeps has an instance wake up that has missed that its partitions were taken away, and that
// is asked at once.
func (w *setup) sleeps(t *testing.T) {
	w.moving(func() {
		m := w.away()
		m.p.Pause()
		w.settled(t)
		await.For(t, 2*time.Second) // others change what was its
		w.mu.Lock()
		from := m.killed
		m.killed = time.Time{}
		w.members = append(append([]*member{}, w.members...), m)
		w.mu.Unlock()
		await.For(t, 200*time.Millisecond) // calls wait for it
		m.p.Continue()
		w.mu.Lock()
		m.slept = append(m.slept, move{from, time.Now()})
		w.mu.Unlock()
		w.settled(t)
	})
}

// watch looks for partitions that are not live, and for dead letters, until it is stopped.
func (w *setup) watch(stop <-chan struct{}, topics *kafkatest.Collector) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		from := time.Now()
		n, _ := w.live()
		w.mu.Lock()
		if n != randomPartitions {
			w.moves = append(w.moves, move{from, time.Now()})
		}
		w.letter = w.letter[:0]
		for _, r := range topics.Records() {
			if strings.HasSuffix(r.Topic, ".dead-letters") && strings.HasPrefix(string(r.Value), "bad-") {
				w.letter = append(w.letter, r)
			}
		}
		w.mu.Unlock()
	}
}

// anyone is an instance that was not killed.
func (w *setup) anyone() *member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.members[w.random.IntN(len(w.members))]
}

func (w *setup) lastSource(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sources[id]
}

// lastPaused is an ID that was paused not long ago, once; empty: there is none.
func (w *setup) lastPaused() (id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.paused); n > 0 {
		id, w.paused = w.paused[n-1], w.paused[:n-1]
	}
	return id
}

// calls makes operations, at the common pace, until there are enough and nothing moves any more.
func (w *setup) calls(t *testing.T, r *rand.Rand, cl *kgo.Client, enough int, pace <-chan time.Time, churned <-chan struct{}) {
	for {
		<-pace
		w.mu.Lock()
		n := len(w.ops)
		o := &op{n: n}
		w.ops = append(w.ops, o)
		w.mu.Unlock()
		select {
		case <-churned:
			if n >= enough {
				return
			}
		default:
		}
		if n%15 == 0 {
			w.overKafka(t, r, cl, n)
		}
		*o = *w.next(r, n)
		w.asks(t, o)
		if o.word() == "paused" {
			w.mu.Lock()
			w.paused = append(w.paused, o.id)
			w.mu.Unlock()
		}
		if o.got.header.Get("Location") != "" {
			w.mu.Lock()
			w.running = append(w.running, o)
			w.mu.Unlock()
		}
		if timer, ok := o.got.body["timer"].(map[string]any); ok && o.id != "" {
			source, _ := timer["source"].(string)
			w.mu.Lock()
			w.sources[o.id] = source
			w.mu.Unlock()
		}
	}
}

// overKafka writes a request as any client does.
func (w *setup) overKafka(t *testing.T, r *rand.Rand, cl *kgo.Client, n int) {
	rec := &kgo.Record{Topic: w.requests, Key: []byte(w.ids[r.IntN(len(w.ids))])}
	if r.IntN(2) == 0 {
		rec.Value = fmt.Append(nil, "kafka-", n)
		rec.Headers = []kgo.RecordHeader{{Key: "timer-after", Value: []byte("1h")}, {Key: "timer-target-topic", Value: []byte(w.target)}}
	}
	if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
		t.Errorf("send: %v", err)
	}
}

// rest waits until no job runs and nothing is about to fire, so that all is known that happens.
func (w *setup) rest(t *testing.T) {
	soon := fmt.Sprint(time.Now().Add(30 * time.Minute).UnixMilli())
	w.mu.Lock()
	jobs := w.running
	w.mu.Unlock()
	for _, j := range jobs {
		if !j.who.killed.IsZero() {
			continue // it has ended with its instance
		}
		await.Until(t, moveLimit, "a job ends", func() bool {
			state := j.who.asked.call(t, "GET", j.got.header.Get("Location"), "").body["state"]
			return state != nil && state != "running"
		})
	}
	await.Until(t, limit, "all has fired that is due", func() bool {
		for _, filter := range []string{"state=triggered", "state=parked", "state=pending&due-before=" + soon} {
			got := w.anyone().asked.call(t, "GET", timersOf(w.requests)+"/count?"+filter, "")
			if got.status != 200 || got.body["count"] != 0.0 || got.body["missing"] != nil {
				return false
			}
		}
		return true
	})
}
