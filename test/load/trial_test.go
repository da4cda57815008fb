package load

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// beside each shape are these plain timers and plain bad requests: they must not be lost, and callers have
	// something to read.
	besideSound, besideBad = 1_000, 100
	// largeBytes is what a batch of a cell's topics may have.
	largeBytes = 2 * mib
	// trialLimit is how long one step of a cell may take. A quiet machine needs a tenth.
	trialLimit = 6 * time.Minute
)

// trial is a cell that runs: what was written, and the processes that work on it.
type trial struct {
	*testing.T
	cell
	cluster          *kafkatest.Cluster
	requests, target string
	id               [16]byte // of the request topic
	client, plain    *kgo.Client
	config, key      string // files
	letters          *letters
	instances        []*instance // those that run
	args             []string    // of theirs, in addition
	peak             int64       // of all of them, and of those before
	readers          *callers    // nil: none

	sound, bad int // of what was written
}

// instance is a process with a directory.
type instance struct {
	*rig.Process
	dir, api string
}

func newTrial(t *testing.T, c *kafkatest.Cluster, of cell) *trial {
	t.Helper()
	limit := strconv.Itoa(largeBytes)
	wide := map[string]*string{"max.message.bytes": &limit}
	x := &trial{T: t, cell: of, cluster: c, requests: c.CreateTopic(t, of.partitions, wide)}
	x.target = c.CreateTopic(t, partitions, wide, x.requests+"-out")
	x.client, x.plain = c.Client(t, of.shape.opts...), c.Client(t, kgo.ProducerLinger(5*time.Millisecond))
	details, err := kadm.NewClient(x.plain).ListTopics(t.Context(), x.requests)
	if err != nil {
		t.Fatal(err)
	}
	x.id = details[x.requests].ID
	x.letters = countLetters(t, c, topics.DeadLetters(x.requests))
	settings := slices.Clone(of.shape.tenant)
	if of.callers && !slices.Contains(settings, withEvents) {
		settings = append(settings, withEvents)
	}
	text := ""
	if len(settings) > 0 {
		text = fmt.Sprintf("tenants:\n  %s:\n    %s\n", x.requests, strings.Join(settings, "\n    "))
	}
	x.config, x.key = rig.File(t, "config.yaml", text), rig.File(t, "api.key", rand.Text()+rand.Text())
	return x
}

const withEvents = "events: true"

// write writes part of parts of what the cell writes, the parts counting from 0.
func (t *trial) write(part, parts int, due time.Time) {
	t.Helper()
	if err := t.writeAll(part, parts, due); err != nil {
		t.Fatalf("write requests: %v", err)
	}
	if part == parts-1 {
		t.wrote()
	}
}

// wrote notes that all is written.
func (t *trial) wrote() { t.sound, t.bad = t.shape.sound+besideSound, t.shape.bad+besideBad }

func (t *trial) writeAll(part, parts int, due time.Time) error {
	from, to := t.shape.units*part/parts, t.shape.units*(part+1)/parts
	if t.shape.batch != nil {
		for n := from; n < to; n++ {
			if err := corpus.Produce(t.Context(), t.plain, t.requests, t.id, int32(n)%t.partitions,
				t.shape.batch()); err != nil {
				return err
			}
		}
	} else if err := sendAll(t.client, from, to, func(n int) *kgo.Record {
		r := t.shape.record(n, due, t.target)
		r.Topic = t.requests
		return r
	}); err != nil {
		return err
	}
	const beside = besideSound + besideBad
	return sendAll(t.plain, beside*part/parts, beside*(part+1)/parts, func(n int) *kgo.Record {
		r := timer(t.requests, t.target, t.shape.units+n, due, []byte("beside"))
		if n >= besideSound {
			r.Headers[0].Value = []byte("tomorrow")
		}
		return r
	})
}

// start starts an instance on a directory, with the cell's callers if it is the first one.
func (t *trial) start(dir string) *instance {
	t.Helper()
	in := &instance{dir: dir, api: rig.FreeAddr(t)}
	args := rig.Arguments(t.cluster.Seeds(), t.requests, dir, "--memory", config.MinMemory.String(),
		"--default-target", t.target, "--config", t.config, "--api", in.api, "--api-key-file", t.key)
	in.Process = rig.Start(t, append(args, t.args...)...)
	t.instances = append(t.instances, in)
	if t.callers && t.readers == nil {
		t.readers = startCallers(t.T, "http://"+in.api, t.requests)
	}
	return in
}

// stop stops an instance in order, and the callers with the last one.
func (t *trial) stop(in *instance) {
	t.Helper()
	t.instances = slices.DeleteFunc(t.instances, func(other *instance) bool { return other == in })
	if t.readers != nil && len(t.instances) == 0 {
		t.readers.stop()
		t.readers = nil
	}
	t.look(in)
	stop(t.T, in.Process)
}

// look holds an instance's peak against the limit.
func (t *trial) look(in *instance) {
	t.Helper()
	_, peak := in.Memory()
	if t.peak = max(t.peak, peak); peak > peakLimit {
		t.Errorf("peak memory %.1f MiB, want %d at most", float64(peak)/mib, peakLimit/mib)
	}
}

// settled waits until all that was written is settled: as many timers are pending as must be, and there is one dead
// letter for each bad request.
func (t *trial) settled(pending int) {
	t.Helper()
	state := ""
	if _, ok := await.Within(trialLimit, func() (ok bool) {
		state, ok = t.state(pending)
		return ok
	}); !ok {
		t.Fatalf("not settled within %s: %s", trialLimit, state)
	}
	t.letters.check(t.T, t.bad)
}

// state is what there is, and whether it is all.
func (t *trial) state(pending int) (text string, ok bool) {
	live, now, queued, off := 0, 0.0, 0.0, 0.0
	for _, in := range t.instances {
		status, body := in.Readyz()
		if status != 200 {
			return fmt.Sprintf("/readyz answers %d: %s", status, body), false
		}
		live += strings.Count(body, `"live"`)
		now, queued = now+in.Metric("waterclock_pending_timers"), queued+in.Metric("waterclock_queue_entries")
		off += in.Metric("waterclock_ledger")
	}
	letters := t.letters.count()
	return fmt.Sprintf("%d of %d partitions are live, %.0f of %d timers pending, %.0f entries queued, ledger %.0f, "+
			"%d of %d dead letters",
			live, t.partitions, now, pending, queued, off, letters, t.bad),
		live == int(t.partitions) && now == float64(pending) && queued == 0 && off == 0 && letters >= t.bad
}

// end stops what still runs, and deletes the topics: brokers do not bear the partitions of all cells.
func (t *trial) end() {
	t.Helper()
	for len(t.instances) > 0 {
		t.stop(t.instances[0])
	}
	names := []string{t.requests, t.target, topics.Changelog(t.requests), topics.DeadLetters(t.requests)}
	if t.callers || slices.Contains(t.shape.tenant, withEvents) {
		names = append(names, topics.Events(t.requests))
	}
	kafkatest.DeleteTopics(t, t.cluster.Admin(t), names...)
}

// letters counts dead letters by their source, for millions of them. mu guards the map.
type letters struct {
	mu sync.Mutex
	of map[string]int
}

func countLetters(t *testing.T, c *kafkatest.Cluster, topic string) *letters {
	l := &letters{of: make(map[string]int)}
	cl := c.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.UnknownTopicRetries(-1))
	kafkatest.Poll(t, cl, func(fetches kgo.Fetches, at time.Time) {
		l.mu.Lock()
		defer l.mu.Unlock()
		fetches.EachRecord(
			func(r *kgo.Record) { l.of[history.Received{Record: r, At: at}.Header(waterclock.HeaderSource)]++ })
	})
	return l
}

// count is how many requests have a dead letter.
func (l *letters) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of)
}

// check checks that each of n bad requests has one.
func (l *letters) check(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	all := 0
	for _, times := range l.of {
		all += times
	}
	if len(l.of) != n || all != n {
		kafkatest.Inexact(t, "%d dead letters of %d requests, want one for each of %d", all, len(l.of), n)
	}
}
