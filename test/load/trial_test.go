package load

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
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
	peak             int64       // of all of them, and of those before
	readers          *callers    // nil: none

	sound, bad int // of what was written
}

// instance is a process with a directory.
type instance struct {
	*rig.Process
	dir, api string
}

// live is how many partitions the instance owns.
func (in *instance) live() int {
	_, body := in.Readyz()
	return strings.Count(body, `"live"`)
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
	x.config = filepath.Join(t.TempDir(), "config.yaml")
	settings := slices.Clone(of.shape.tenant)
	if of.callers && !slices.Contains(settings, withEvents) {
		settings = append(settings, withEvents)
	}
	text := ""
	if len(settings) > 0 {
		text = fmt.Sprintf("tenants:\n  %s:\n    %s\n", x.requests, strings.Join(settings, "\n    "))
	}
	x.key = filepath.Join(filepath.Dir(x.config), "api.key")
	for path, text := range map[string]string{x.config: text, x.key: rand.Text() + rand.Text()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

const withEvents = "events: true"

// write writes part of parts of what the cell writes, the parts counting from 0.
func (x *trial) write(part, parts int, due time.Time) {
	x.Helper()
	if err := x.writeAll(part, parts, due); err != nil {
		x.Fatalf("write requests: %v", err)
	}
	if part == parts-1 {
		x.sound, x.bad = x.shape.sound+besideSound, x.shape.bad+besideBad
	}
}

func (x *trial) writeAll(part, parts int, due time.Time) error {
	from, to := x.shape.units*part/parts, x.shape.units*(part+1)/parts
	if x.shape.batch != nil {
		for n := from; n < to; n++ {
			if err := corpus.Produce(x.Context(), x.plain, x.requests, x.id, int32(n)%x.partitions, x.shape.batch()); err != nil {
				return err
			}
		}
	} else if err := sendAll(x.client, from, to, func(n int) *kgo.Record {
		r := x.shape.record(n, due, x.target)
		r.Topic = x.requests
		return r
	}); err != nil {
		return err
	}
	const beside = besideSound + besideBad
	return sendAll(x.plain, beside*part/parts, beside*(part+1)/parts, func(n int) *kgo.Record {
		r := timer(x.requests, x.target, x.shape.units+n, due, []byte("beside"))
		if n >= besideSound {
			r.Headers[0].Value = []byte("tomorrow")
		}
		return r
	})
}

// start starts an instance on a directory, with the cell's callers if it is the first one.
func (x *trial) start(dir string) *instance {
	x.Helper()
	in := &instance{dir: dir, api: rig.FreeAddr(x)}
	args := rig.Arguments(x.cluster.Seeds(), x.requests, dir, "--memory", config.MinMemory.String(),
		"--default-target", x.target, "--config", x.config, "--api", in.api, "--api-key-file", x.key)
	pprof := ""
	if *profileFlag != "" {
		pprof = rig.FreeAddr(x)
		args = append(args, "--pprof", pprof)
	}
	in.Process = rig.Start(x, args...)
	if pprof != "" {
		go profile(x.T, in.Process, pprof)
	}
	x.instances = append(x.instances, in)
	if x.callers && x.readers == nil {
		x.readers = startCallers(x.T, "http://"+in.api, x.requests)
	}
	return in
}

// stop stops an instance in order, and the callers with the last one.
func (x *trial) stop(in *instance) {
	x.Helper()
	x.instances = slices.DeleteFunc(x.instances, func(other *instance) bool { return other == in })
	if x.readers != nil && len(x.instances) == 0 {
		x.readers.stop()
		x.readers = nil
	}
	x.look(in)
	stop(x.T, in.Process)
}

// look holds an instance's peak against the limit.
func (x *trial) look(in *instance) {
	x.Helper()
	_, peak := in.Memory()
	if x.peak = max(x.peak, peak); peak > peakLimit {
		x.Errorf("peak memory %.1f MiB, want %d at most", float64(peak)/mib, peakLimit/mib)
	}
}

// settled waits until all that was written is settled: as many timers are pending as must be, and there is one dead letter
// for each bad request.
func (x *trial) settled(pending int) {
	x.Helper()
	state := ""
	if _, ok := await.Within(trialLimit, func() (ok bool) {
		state, ok = x.state(pending)
		return ok
	}); !ok {
		x.Fatalf("not settled within %s: %s", trialLimit, state)
	}
	x.letters.check(x.T, x.bad)
}

// state is what there is, and whether it is all.
func (x *trial) state(pending int) (text string, ok bool) {
	live, now, queued, off := 0, 0.0, 0.0, 0.0
	for _, in := range x.instances {
		status, body := in.Readyz()
		if status != 200 {
			return fmt.Sprintf("/readyz answers %d: %s", status, body), false
		}
		live += strings.Count(body, `"live"`)
		now, queued = now+in.Metric("waterclock_pending_timers"), queued+in.Metric("waterclock_queue_entries")
		off += in.Metric("waterclock_ledger")
	}
	letters := x.letters.count()
	return fmt.Sprintf("%d of %d partitions are live, %.0f of %d timers pending, %.0f entries queued, ledger %.0f, %d of %d dead letters",
			live, x.partitions, now, pending, queued, off, letters, x.bad),
		live == int(x.partitions) && now == float64(pending) && queued == 0 && off == 0 && letters >= x.bad
}

// end stops what still runs, and deletes the topics: brokers do not bear the partitions of all cells.
func (x *trial) end() {
	x.Helper()
	for len(x.instances) > 0 {
		x.stop(x.instances[0])
	}
	own := []string{x.requests, x.target, topics.Changelog(x.requests), topics.DeadLetters(x.requests)}
	if x.callers || slices.Contains(x.shape.tenant, withEvents) {
		own = append(own, topics.Events(x.requests))
	}
	kafkatest.DeleteTopics(x, x.cluster.Admin(x), own...)
}

// letters counts dead letters by their source, for millions of them. mu guards the map.
type letters struct {
	mu sync.Mutex
	of map[string]int
}

func countLetters(t *testing.T, c *kafkatest.Cluster, topic string) *letters {
	l := &letters{of: make(map[string]int)}
	cl := c.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.UnknownTopicRetries(-1))
	kafkatest.Poll(t, cl, func(fetches kgo.Fetches, at time.Time) {
		l.mu.Lock()
		defer l.mu.Unlock()
		fetches.EachRecord(func(r *kgo.Record) { l.of[history.Received{Record: r, At: at}.Header(waterclock.HeaderSource)]++ })
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
