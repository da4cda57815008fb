package interleavings

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// session is long enough for a member not to be dropped on a busy machine.
	session = 6 * time.Second
	// patience is how long something may take that must happen.
	patience = 60 * time.Second
	// quiet is how long nothing more must come, once everything has.
	quiet = 700 * time.Millisecond
	// leastLead is how much later timers are due that must all be pending before, on a machine that is idle.
	leastLead = 5 * time.Second
	// never is a due time that no test lives to see.
	never = 1000 * time.Hour
)

func TestMain(m *testing.M) {
	rig.PlayVictim()
	kafkatest.Main(m)
}

// setup has a target of one partition.
type setup struct {
	*rig.Setup
	adm        *kadm.Client
	partitions int32
	// lead is how much later timers are due that must all be pending before.
	lead time.Duration
}

func newSetup(t *testing.T, c *kafkatest.Cluster, partitions int32) *setup {
	t.Helper()
	began := time.Now()
	s := rig.NewSetup(t, c, partitions, 1)
	busy := 10 * time.Since(began) // it creates topics, which takes a third of a second on an idle machine
	return &setup{s, kadm.NewClient(s.Client), partitions, max(leastLead, min(busy, 6*leastLead))}
}

// config is that of an instance with a directory of its own.
func (w *setup) config() *config.Config {
	cfg := w.Config()
	cfg.SessionTimeout = session
	return cfg
}

func (w *setup) group() string     { return "group-of-" + w.Requests }
func (w *setup) changelog() string { return topics.Changelog(w.Requests) }

func (w *setup) timer(id, value string, due time.Time) *kgo.Record {
	return w.Request(id, value, "timer-at", strconv.FormatInt(due.UnixMilli(), 10), "timer-target-topic", w.Target)
}

// pending waits until the instance holds just n timers in its store.
func (w *setup) pending(in *rig.Web, n int) {
	w.Helper()
	await.Until(w, patience, fmt.Sprintf("%d pending timers", n), func() bool {
		return in.Metric("waterclock_pending_timers") == float64(n)
	})
}

// nearlyDue schedules n timers and waits until the instance holds them, before they are due. It returns what must be emitted.
func (w *setup) nearlyDue(in *rig.Web, n int) map[string][]string {
	w.Helper()
	want := make(map[string][]string)
	due := time.Now().Add(w.lead)
	var recs []*kgo.Record
	for i := range n {
		id := fmt.Sprint("t-", i)
		recs = append(recs, w.timer(id, "1", due))
		values(want, id, "1")
	}
	w.Send(recs...)
	w.pending(in, n)
	if time.Now().After(due) {
		w.Fatal("the machine is too slow for this test")
	}
	return want
}

// at waits for an instant.
func (w *setup) at(when time.Time) { await.For(w, time.Until(when)) }

// finish waits until every ID of want was emitted with these values, one after
// the other, and checks that nothing else comes: nothing lost, duplicated or early.
// It ends with one timer for each request partition that fires at once: what
// was decided before it is in the target before it.
func (w *setup) finish(want map[string][]string) {
	w.Helper()
	n := 0
	for _, vs := range want {
		n += len(vs)
	}
	w.Out.WaitFor(n, patience)
	manual := w.Cluster.Client(w.T, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range w.partitions {
		r := w.timer(fmt.Sprint("barrier-", p), "", time.Now().Add(-time.Second))
		r.Partition = p
		if err := manual.ProduceSync(w.Context(), r).FirstErr(); err != nil {
			w.Fatalf("send: %v", err)
		}
	}
	await.Until(w, patience, "barriers", func() bool {
		barriers := 0
		for _, r := range w.Out.Records() {
			if strings.HasPrefix(r.Header("waterclock-id"), "barrier-") {
				barriers++
			}
		}
		return barriers >= int(w.partitions)
	})
	w.Out.Quiet(quiet)
	got := rig.Emissions(w.T, w.Out.Records())
	wrong := 0
	complain := func(format string, args ...any) {
		if wrong++; wrong <= 10 {
			kafkatest.Inexact(w, format, args...)
		}
	}
	for id, vs := range want {
		var values []string
		for _, r := range got[id] {
			values = append(values, string(r.Value))
		}
		if strings.Join(values, "|") != strings.Join(vs, "|") {
			complain("%s: emitted %q, want %q", id, values, vs)
		}
	}
	for id, rs := range got {
		if _, ok := want[id]; !ok && !strings.HasPrefix(id, "barrier-") {
			complain("%s: emitted %d times, want none", id, len(rs))
		}
	}
	w.Logf("%d emissions of %d IDs: %d IDs wrong (lost, duplicated or unwanted)", n, len(want), wrong)
}

// deleteOffsets removes the group's offsets. The group must be empty.
func (w *setup) deleteOffsets() {
	w.Helper()
	set := kadm.TopicsSet{}
	for p := range w.partitions {
		set.Add(w.Requests, p)
	}
	resp, err := w.adm.DeleteOffsets(w.Context(), w.group(), set)
	if err != nil {
		w.Fatalf("delete offsets: %v", err)
	}
	if err := resp.Error(); err != nil {
		w.Fatalf("delete offsets: %v", err)
	}
}

// foreign is a transactional producer of somebody else.
func (w *setup) foreign(name string) *txn {
	w.Helper()
	return &txn{w, w.Cluster.Client(w.T, kgo.TransactionalID(name+"-"+w.Requests), kgo.TransactionTimeout(5*time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))}
}

// hanging is a producer as an owner of the group's would have it.
func (w *setup) hanging(name string) *txn {
	w.Helper()
	return &txn{w, w.Cluster.Client(w.T, kgo.TransactionalID(repair.TransactionalIDPrefix(w.group())+name+"/0/1"), kgo.TransactionTimeout(5*time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))}
}

// txn is a transactional producer with manual partitions.
type txn struct {
	w  *setup
	cl *kgo.Client
}

func (x *txn) begin(recs ...*kgo.Record) {
	x.w.Helper()
	if err := x.cl.BeginTransaction(); err != nil {
		x.w.Fatalf("begin: %v", err)
	}
	x.add(recs...)
}

func (x *txn) add(recs ...*kgo.Record) {
	x.w.Helper()
	if err := x.cl.ProduceSync(x.w.Context(), recs...).FirstErr(); err != nil {
		x.w.Fatalf("produce in a transaction: %v", err)
	}
}

func (x *txn) end(commit kgo.TransactionEndTry) {
	x.w.Helper()
	if err := x.cl.EndTransaction(x.w.Context(), commit); err != nil {
		x.w.Fatalf("end transaction: %v", err)
	}
}

// owned are the partitions of the request topic that an instance holds.
func (w *setup) owned(in *rig.Web) (ps []int32) {
	w.Helper()
	_, body := in.Readyz()
	var shown struct {
		Detail struct {
			Topics map[string]map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(body), &shown); err != nil {
		w.Fatalf("readyz: %v: %s", err, body)
	}
	for name := range shown.Detail.Topics[w.Requests] {
		p, err := strconv.Atoi(name)
		if err != nil {
			w.Fatalf("readyz: %v: %s", err, body)
		}
		ps = append(ps, int32(p))
	}
	return ps
}

// limited bounds a wait.
func (w *setup) limited(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), d)
	w.Cleanup(cancel)
	return ctx
}

// values is want with one value for each ID.
func values(want map[string][]string, id string, vs ...string) {
	want[id] = append(want[id], vs...)
}
