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
func (se *setup) config() *config.Config {
	cfg := se.Config()
	cfg.SessionTimeout = session
	return cfg
}

func (se *setup) group() string     { return "group-of-" + se.Requests }
func (se *setup) changelog() string { return topics.Changelog(se.Requests) }

func (se *setup) timer(id, value string, due time.Time) *kgo.Record {
	return se.Request(id, value, "timer-at", strconv.FormatInt(due.UnixMilli(), 10), "timer-target-topic", se.Target)
}

// pending waits until the instance holds just n timers in its store.
func (se *setup) pending(in *rig.Web, n int) {
	se.Helper()
	await.Until(se, patience, fmt.Sprintf("%d pending timers", n), func() bool {
		return in.Metric("waterclock_pending_timers") == float64(n)
	})
}

// nearlyDue schedules n timers and waits until the instance holds them, before they are due. It returns what must be
// emitted.
func (se *setup) nearlyDue(in *rig.Web, n int) map[string][]string {
	se.Helper()
	want := make(map[string][]string)
	due := time.Now().Add(se.lead)
	var recs []*kgo.Record
	for i := range n {
		id := fmt.Sprint("t-", i)
		recs = append(recs, se.timer(id, "1", due))
		values(want, id, "1")
	}
	se.Send(recs...)
	se.pending(in, n)
	if time.Now().After(due) {
		se.Fatal("the machine is too slow for this test")
	}
	return want
}

// at waits for an instant.
func (se *setup) at(when time.Time) { await.For(se, time.Until(when)) }

// finish waits until every ID of want was emitted with these values, one after
// the other, and checks that nothing else comes: nothing lost, duplicated or early.
// It ends with one timer for each request partition that fires at once: what
// was decided before it is in the target before it.
func (se *setup) finish(want map[string][]string) {
	se.Helper()
	n := 0
	for _, vs := range want {
		n += len(vs)
	}
	se.Out.WaitFor(n, patience)
	manual := se.Cluster.Client(se.T, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range se.partitions {
		r := se.timer(fmt.Sprint("barrier-", p), "", time.Now().Add(-time.Second))
		r.Partition = p
		if err := manual.ProduceSync(se.Context(), r).FirstErr(); err != nil {
			se.Fatalf("send: %v", err)
		}
	}
	await.Until(se, patience, "barriers", func() bool {
		barriers := 0
		for _, r := range se.Out.Records() {
			if strings.HasPrefix(r.Header("waterclock-id"), "barrier-") {
				barriers++
			}
		}
		return barriers >= int(se.partitions)
	})
	se.Out.Quiet(quiet)
	got := rig.Emissions(se.T, se.Out.Records())
	wrong := 0
	complain := func(format string, args ...any) {
		if wrong++; wrong <= 10 {
			kafkatest.Inexact(se, format, args...)
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
	se.Logf("%d emissions of %d IDs: %d IDs wrong (lost, duplicated or unwanted)", n, len(want), wrong)
}

// deleteOffsets removes the group's offsets. The group must be empty.
func (se *setup) deleteOffsets() {
	se.Helper()
	set := kadm.TopicsSet{}
	for p := range se.partitions {
		set.Add(se.Requests, p)
	}
	resp, err := se.adm.DeleteOffsets(se.Context(), se.group(), set)
	if err != nil {
		se.Fatalf("delete offsets: %v", err)
	}
	if err := resp.Error(); err != nil {
		se.Fatalf("delete offsets: %v", err)
	}
}

// foreign is a transactional producer of somebody else.
func (se *setup) foreign(name string) *txn {
	se.Helper()
	return &txn{se, se.Cluster.Client(se.T, kgo.TransactionalID(name+"-"+se.Requests),
		kgo.TransactionTimeout(5*time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))}
}

// hanging is a producer as an owner of the group's would have it.
func (se *setup) hanging(name string) *txn {
	se.Helper()
	return &txn{se, se.Cluster.Client(se.T, kgo.TransactionalID(repair.TransactionalIDPrefix(se.group())+name+"/0/1"),
		kgo.TransactionTimeout(5*time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))}
}

// txn is a transactional producer with manual partitions.
type txn struct {
	w  *setup
	cl *kgo.Client
}

func (t *txn) begin(recs ...*kgo.Record) {
	t.w.Helper()
	if err := t.cl.BeginTransaction(); err != nil {
		t.w.Fatalf("begin: %v", err)
	}
	t.add(recs...)
}

func (t *txn) add(recs ...*kgo.Record) {
	t.w.Helper()
	if err := t.cl.ProduceSync(t.w.Context(), recs...).FirstErr(); err != nil {
		t.w.Fatalf("produce in a transaction: %v", err)
	}
}

func (t *txn) end(commit kgo.TransactionEndTry) {
	t.w.Helper()
	if err := t.cl.EndTransaction(t.w.Context(), commit); err != nil {
		t.w.Fatalf("end transaction: %v", err)
	}
}

// owned are the partitions of the request topic that an instance holds.
func (se *setup) owned(in *rig.Web) (ps []int32) {
	se.Helper()
	_, body := in.Readyz()
	var shown struct {
		Detail struct {
			Topics map[string]map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(body), &shown); err != nil {
		se.Fatalf("readyz: %v: %s", err, body)
	}
	for name := range shown.Detail.Topics[se.Requests] {
		p, err := strconv.Atoi(name)
		if err != nil {
			se.Fatalf("readyz: %v: %s", err, body)
		}
		ps = append(ps, int32(p))
	}
	return ps
}

// limited bounds a wait.
func (se *setup) limited(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(se.Context(), d)
	se.Cleanup(cancel)
	return ctx
}

// values is want with one value for each ID.
func values(want map[string][]string, id string, vs ...string) {
	want[id] = append(want[id], vs...)
}
