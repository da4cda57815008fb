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
func (s *setup) join(t *testing.T) {
	addr := rig.FreeAddr(t)
	m := &member{
		name:  fmt.Sprint("instance ", len(s.all)),
		asked: &asked{client(t), "http://" + addr},
		p:     rig.Start(t, rig.Arguments(s.seeds, s.requests, t.TempDir(), "--api", addr, "--api-key-file", s.key)...),
	}
	await.Until(t, limit, "it listens", func() bool { return m.asked.call(t, "GET", "/docs", "").status != 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members, s.all = append(s.members, m), append(s.all, m)
}

// live is how many live partitions the instances own together, and whether each has its share.
func (s *setup) live() (n int, shared bool) {
	s.mu.Lock()
	members := s.members
	s.mu.Unlock()
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
func (s *setup) settled(t *testing.T) {
	t.Helper()
	await.Until(t, moveLimit, "all partitions are live again", func() bool {
		n, shared := s.live()
		return n == randomPartitions && shared
	})
}

// moving notes a move while do has it happen.
func (s *setup) moving(do func()) {
	s.mu.Lock()
	i := len(s.moves)
	s.moves = append(s.moves, move{time.Now(), time.Now().Add(time.Hour)})
	s.mu.Unlock()
	do()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moves[i].to = time.Now()
}

// churn takes instances away and has others join. One is killed (SIGKILL), one is stopped where
// it stands until others have its partitions, and then goes on, and one ends in order.
func (s *setup) churn(t *testing.T, rounds int) {
	for round := range rounds {
		await.For(t, 2*time.Second)
		switch round % 3 {
		case 0:
			s.leaves(t, (*rig.Process).Kill)
		case 1:
			s.sleeps(t)
			continue
		case 2:
			s.leaves(t, func(p *rig.Process) { p.Term(); p.Exit(limit) })
		}
		await.For(t, time.Second)
		s.moving(func() {
			s.join(t)
			s.settled(t)
		})
	}
	await.For(t, 2*time.Second)
}

// away has an instance not be asked any more.
func (s *setup) away() *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.random.IntN(len(s.members))
	m := s.members[i]
	m.killed = time.Now()
	s.members = append(append([]*member{}, s.members[:i]...), s.members[i+1:]...)
	return m
}

func (s *setup) leaves(t *testing.T, how func(*rig.Process)) {
	s.moving(func() {
		m := s.away()
		how(m.p)
		s.settled(t)
	})
}

// sleeps has an instance wake up that has missed that its partitions were taken away, and that
// is asked at once.
func (s *setup) sleeps(t *testing.T) {
	s.moving(func() {
		m := s.away()
		m.p.Pause()
		s.settled(t)
		await.For(t, 2*time.Second) // others change what was its
		s.mu.Lock()
		from := m.killed
		m.killed = time.Time{}
		s.members = append(append([]*member{}, s.members...), m)
		s.mu.Unlock()
		await.For(t, 200*time.Millisecond) // calls wait for it
		m.p.Continue()
		s.mu.Lock()
		m.slept = append(m.slept, move{from, time.Now()})
		s.mu.Unlock()
		s.settled(t)
	})
}

// watch looks for partitions that are not live, and for dead letters, until it is stopped.
func (s *setup) watch(stop <-chan struct{}, topics *kafkatest.Collector) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		from := time.Now()
		n, _ := s.live()
		s.mu.Lock()
		if n != randomPartitions {
			s.moves = append(s.moves, move{from, time.Now()})
		}
		s.letter = s.letter[:0]
		for _, r := range topics.Records() {
			if strings.HasSuffix(r.Topic, ".dead-letters") && strings.HasPrefix(string(r.Value), "bad-") {
				s.letter = append(s.letter, r)
			}
		}
		s.mu.Unlock()
	}
}

// anyone is an instance that was not killed.
func (s *setup) anyone() *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[s.random.IntN(len(s.members))]
}

func (s *setup) lastSource(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sources[id]
}

// lastPaused is an ID that was paused not long ago, once; empty: there is none.
func (s *setup) lastPaused() (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.paused); n > 0 {
		id, s.paused = s.paused[n-1], s.paused[:n-1]
	}
	return id
}

// calls makes operations, at the common pace, until there are enough and nothing moves any more.
func (s *setup) calls(t *testing.T, r *rand.Rand, cl *kgo.Client, enough int, pace <-chan time.Time,
	churned <-chan struct{}) {
	for {
		<-pace
		s.mu.Lock()
		n := len(s.ops)
		o := &op{n: n}
		s.ops = append(s.ops, o)
		s.mu.Unlock()
		select {
		case <-churned:
			if n >= enough {
				return
			}
		default:
		}
		if n%15 == 0 {
			s.overKafka(t, r, cl, n)
		}
		*o = *s.next(r, n)
		s.asks(t, o)
		if o.word() == "paused" {
			s.mu.Lock()
			s.paused = append(s.paused, o.id)
			s.mu.Unlock()
		}
		if o.got.header.Get("Location") != "" {
			s.mu.Lock()
			s.running = append(s.running, o)
			s.mu.Unlock()
		}
		if timer, ok := o.got.body["timer"].(map[string]any); ok && o.id != "" {
			source, _ := timer["source"].(string)
			s.mu.Lock()
			s.sources[o.id] = source
			s.mu.Unlock()
		}
	}
}

// overKafka writes a request as any client does.
func (s *setup) overKafka(t *testing.T, r *rand.Rand, cl *kgo.Client, n int) {
	rec := &kgo.Record{Topic: s.requests, Key: []byte(s.ids[r.IntN(len(s.ids))])}
	if r.IntN(2) == 0 {
		rec.Value = fmt.Append(nil, "kafka-", n)
		rec.Headers = []kgo.RecordHeader{{Key: "timer-after", Value: []byte("1h")},
			{Key: "timer-target-topic", Value: []byte(s.target)}}
	}
	if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
		t.Errorf("send: %v", err)
	}
}

// rest waits until no job runs and nothing is about to fire, so that all is known that happens.
func (s *setup) rest(t *testing.T) {
	soon := fmt.Sprint(time.Now().Add(30 * time.Minute).UnixMilli())
	s.mu.Lock()
	jobs := s.running
	s.mu.Unlock()
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
			got := s.anyone().asked.call(t, "GET", timersOf(s.requests)+"/count?"+filter, "")
			if got.status != 200 || got.body["count"] != 0.0 || got.body["missing"] != nil {
				return false
			}
		}
		return true
	})
}
