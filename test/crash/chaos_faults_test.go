package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

const (
	// brokerSession is how long the controller waits for a broker (broker.session.timeout.ms), and a little.
	brokerSession = 10 * time.Second
	// stopLimit is how long an instance may take to stop in order.
	stopLimit = time.Minute
	// adminLimit bounds what is asked of brokers, one of which may be away.
	adminLimit = 10 * time.Second
	// foreignTimeout is when a broker aborts a transaction that was abandoned. It looks every ten seconds.
	foreignTimeout = 10 * time.Second
	foreignOver    = 2*foreignTimeout + 5*time.Second
)

// fault is one thing that is done.
type fault struct {
	host *host
	long time.Duration
	arg  int // drawn; each kind has its own use for it
}

// kind is a kind of fault. Its weight is how often it comes, among those of its lane.
type kind struct {
	weight      int
	least, more time.Duration // it takes at least the one, and up to the other longer
	// do has it happen and returns when it is over. It says what was done, to what; "" if nothing was.
	do func(w *world, ctx context.Context, f fault) (what, on string)
}

// lane is a sequence of faults. Those of different lanes overlap.
type lane struct {
	every time.Duration // on average, from the end of one to the begin of the next
	hosts []*host       // those that are concerned
	kinds []kind
}

func (w *world) lanes() (all []lane) {
	const second = time.Second
	for _, h := range w.hosts {
		all = append(all, lane{12 * second, []*host{h}, []kind{
			{6, second / 2, 8 * second, (*world).kill},
			{3, second / 5, 4 * second, (*world).pause},
			{3, session + second, 8 * second, (*world).pause},
			{3, second / 2, 5 * second, (*world).stop},
			{2, 20 * second, 20 * second, (*world).fillDisk},
			{2, 3 * second, 8 * second, (*world).replace},
		}})
	}
	return append(all,
		lane{60 * second, w.hosts, []kind{{1, second, 8 * second, (*world).killAll}}},
		lane{6 * second, nil, []kind{
			{6, brokerSession, 6 * second, (*world).killBroker},
			{2, second / 2, 6 * second, (*world).pauseBroker},
			{2, brokerSession, 6 * second, (*world).pauseBroker},
			{2, second / 2, 6 * second, (*world).stopBroker},
			{4, 0, 0, (*world).moveLeaders},
		}},
		lane{4 * second, w.hosts[1:], []kind{
			{3, 2 * second, 8 * second, (*world).delay},
			{2, 0, 0, (*world).cut},
			{3, second / 3, 10 * second, (*world).blackHole},
			{4, second, 4 * second, onWire("answers lost", (*kafkatest.Wire).DropResponse)},
			{2, second, 4 * second, onWire("requests lost", (*kafkatest.Wire).DropRequest)},
			{2, second / 2, 10 * second, onWire("answers held", holdAnswers)},
			{2, second / 2, 10 * second, onWire("requests held", (*kafkatest.Wire).HoldRequest)},
		}},
		lane{12 * second, nil, []kind{
			{3, second / 5, 8 * second, (*world).foreign},
			{2, 4 * second, 8 * second, (*world).join},
		}},
	)
}

// storm has faults happen until ctx ends. What it returns is closed when all of them are over.
func (w *world) storm(ctx context.Context) <-chan struct{} {
	var lanes sync.WaitGroup
	for i, l := range w.lanes() {
		r := rand.New(rand.NewPCG(w.seed, uint64(w.rounds<<8+i+2)))
		lanes.Go(func() {
			for wait(ctx, between(r, 2*l.every)); ctx.Err() == nil; wait(ctx, between(r, 2*l.every)) {
				w.strike(ctx, r, l)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		lanes.Wait()
		close(over)
	}()
	return over
}

// strike draws a fault of a lane and has it happen.
func (w *world) strike(ctx context.Context, r *rand.Rand, l lane) {
	weights := 0
	for _, k := range l.kinds {
		weights += k.weight
	}
	at, n := 0, r.IntN(weights)
	for n -= l.kinds[0].weight; n >= 0; n -= l.kinds[at].weight {
		at++
	}
	k := l.kinds[at]
	f := fault{long: k.least + between(r, k.more), arg: r.IntN(1 << 20)}
	if len(l.hosts) > 0 {
		f.host = l.hosts[r.IntN(len(l.hosts))]
	}
	from := time.Now()
	if what, on := k.do(w, ctx, f); what != "" {
		w.note(history.Fault{Kind: what, On: on, From: from, To: time.Now()})
	}
}

func between(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(d) + 1))
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (w *world) kill(ctx context.Context, f fault) (what, on string) {
	h := f.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.runs() {
		return "", ""
	}
	h.p.Kill()
	what = "instance killed, " + h.redisk([]int{kept, kept, kept, kept, lost, lost, older, anothers}[f.arg%8])
	wait(ctx, f.long)
	h.start()
	return what, h.name()
}

// killAll has requests come while nobody runs.
func (w *world) killAll(ctx context.Context, f fault) (what, on string) {
	for _, h := range w.hosts {
		h.mu.Lock()
		defer h.mu.Unlock()
	}
	for i, h := range w.hosts {
		h.p.Kill()
		h.redisk([]int{kept, kept, lost, older}[(f.arg+i)%4])
	}
	wait(ctx, f.long)
	for _, h := range w.hosts {
		h.start()
	}
	return "all instances killed", "all"
}

func (w *world) pause(ctx context.Context, f fault) (what, on string) {
	h := f.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.signal(syscall.SIGSTOP) {
		return "", ""
	}
	from := time.Now()
	wait(ctx, f.long)
	what = "instance paused"
	if time.Since(from) > session {
		what += " beyond its session"
	}
	h.signal(syscall.SIGCONT)
	return what, h.name()
}

// stop stops an instance in order, or has it hand over and leave.
func (w *world) stop(ctx context.Context, f fault) (what, on string) {
	h := f.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.runs() {
		return "", ""
	}
	what = h.end(f.arg)
	wait(ctx, f.long)
	h.start()
	return what, h.name()
}

// fillDisk fills the small disk of an instance. It has to end by itself if it needs it.
func (w *world) fillDisk(_ context.Context, f fault) (what, on string) {
	h := f.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.small || !h.runs() {
		return "", ""
	}
	free, err := h.clog()
	if err != nil {
		w.t.Error(err)
		return "", ""
	}
	what = "disk full, and not needed"
	if ended(h.p, f.long) {
		what = "disk full, the instance ended"
	}
	free()
	if !h.runs() {
		h.start()
	}
	return what, h.name()
}

// replace has another process, on another disk, take the name of an instance that stands still and then goes on.
func (w *world) replace(ctx context.Context, f fault) (what, on string) {
	h := f.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if !w.static || !h.signal(syscall.SIGSTOP) {
		return "", ""
	}
	former := h.p
	h.newDisk()
	h.start()
	wait(ctx, f.long)
	_ = former.Signal(syscall.SIGCONT)
	wait(ctx, 3*time.Second)
	if former.Signal(syscall.SIGTERM) == nil && !ended(former, stopLimit) {
		w.t.Errorf("%s, which was replaced, does not stop within %s", h.name(), stopLimit)
	}
	return "instance replaced under its name", h.name()
}

func brokerName(n int) string { return fmt.Sprint("broker ", n) }

func (w *world) killBroker(_ context.Context, f fault) (what, on string) {
	n := f.arg % brokers
	w.c.Kill(n)
	<-time.After(f.long)
	w.c.Restart(n)
	return "broker killed", brokerName(n)
}

func (w *world) pauseBroker(ctx context.Context, f fault) (what, on string) {
	n, from := f.arg%brokers, time.Now()
	w.c.Pause(n)
	wait(ctx, f.long)
	w.c.Resume(n)
	what = "broker paused"
	if time.Since(from) > brokerSession {
		what += " beyond its session"
	}
	return what, brokerName(n)
}

func (w *world) stopBroker(ctx context.Context, f fault) (what, on string) {
	n := f.arg % brokers
	w.c.Stop(n)
	wait(ctx, f.long)
	w.c.Restart(n)
	return "broker stopped", brokerName(n)
}

// moveLeaders has other brokers lead the partitions of a topic: of coordinators, too.
func (w *world) moveLeaders(ctx context.Context, f fault) (what, on string) {
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	all := []string{
		w.load.requests, w.load.target, topics.Changelog(w.load.requests), topics.Events(w.load.requests),
		topics.DeadLetters(w.load.requests),
		"__consumer_offsets", "__transaction_state",
	}
	topic := all[f.arg%len(all)]
	listed, err := w.adm.ListTopicsWithInternal(ctx, topic)
	if err != nil {
		return "", ""
	}
	var req kadm.AlterPartitionAssignmentsReq
	elect := make(kadm.TopicsSet)
	for p, is := range listed[topic].Partitions {
		if len(is.Replicas) == brokers {
			req.Assign(topic, p, []int32{is.Replicas[1], is.Replicas[2], is.Replicas[0]})
			elect.Add(topic, p)
		}
	}
	if _, err := w.adm.AlterPartitionAssignments(ctx, req); err != nil {
		return "", ""
	}
	if _, err := w.adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect); err != nil {
		return "", ""
	}
	return "leaders moved", topic
}

func (w *world) delay(ctx context.Context, f fault) (what, on string) {
	f.host.wire.Delay(time.Duration(10+f.arg%200) * time.Millisecond)
	wait(ctx, f.long)
	f.host.wire.Delay(0)
	return "network slow", f.host.name()
}

func (w *world) cut(_ context.Context, f fault) (what, on string) {
	f.host.wire.Cut()
	return "connections cut", f.host.name()
}

func (w *world) blackHole(ctx context.Context, f fault) (what, on string) {
	f.host.wire.Blackhole(true)
	wait(ctx, f.long)
	f.host.wire.Blackhole(false)
	return "network a black hole", f.host.name()
}

func holdAnswers(w *kafkatest.Wire, key int16, _ int) *kafkatest.Fault { return w.HoldResponse(key) }

// onWire returns a fault between an instance and its brokers: one request is concerned, or all of them for a time.
func onWire(what string, inject func(w *kafkatest.Wire, key int16, n int) *kafkatest.Fault) func(*world,
	context.Context, fault) (string, string) {
	keys := []kmsg.Key{kmsg.EndTxn, kmsg.EndTxn, kmsg.EndTxn, kmsg.Produce, kmsg.TxnOffsetCommit, kmsg.Heartbeat,
		kmsg.JoinGroup, kmsg.Fetch}
	return func(_ *world, ctx context.Context, f fault) (string, string) {
		n := 1
		if f.arg%3 == 0 {
			n = kafkatest.Every
		}
		key := keys[f.arg/3%len(keys)]
		injected := inject(f.host.wire, key.Int16(), n)
		wait(ctx, f.long)
		injected.Release()
		if injected.Hits() == 0 {
			return "", ""
		}
		return what + ", of " + key.Name(), f.host.name()
	}
}

// foreign has a producer of somebody else write requests in a transaction, and commit, abort or abandon it.
func (w *world) foreign(ctx context.Context, f fault) (what, on string) {
	from, how := time.Now(), f.arg%3
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(w.c.Seeds()...), kgo.TransactionalID(fmt.Sprint(foreignID, w.rounds, "-", f.arg)),
		kgo.TransactionTimeout(foreignTimeout), kgo.RecordDeliveryTimeout(adminLimit))
	if err != nil {
		w.t.Error(err)
		return "", ""
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		w.t.Error(err)
		return "", ""
	}
	limited, cancel := context.WithTimeout(w.t.Context(), adminLimit)
	defer cancel()
	sent := true
	for i := range 4 {
		rec := w.load.timer(fmt.Sprint(foreignID, w.rounds, "-", f.arg, "-", i), from.Add(time.Duration(i)*time.Second))
		sent = sent && cl.ProduceSync(limited, rec).FirstErr() == nil
	}
	wait(ctx, f.long)
	ended := false
	if sent && how < 2 {
		limited, cancel := context.WithTimeout(w.t.Context(), adminLimit)
		defer cancel()
		ended = cl.EndTransaction(limited, kgo.TransactionEndTry(how == 0)) == nil
	}
	if ended {
		return [...]string{"foreign transaction committed", "foreign transaction aborted"}[how], w.load.requests
	}
	<-time.After(time.Until(from.Add(foreignOver)))
	return "foreign transaction abandoned", w.load.requests
}

// join has a further instance for a time.
func (w *world) join(ctx context.Context, f fault) (what, on string) {
	h := w.guest
	h.mu.Lock()
	defer h.mu.Unlock()
	h.start()
	wait(ctx, f.long)
	if f.arg%2 == 0 {
		return "further " + h.end(f.arg>>1), h.name()
	}
	h.p.Kill()
	return "further instance killed", h.name()
}
