package simulation

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

// Names that others speak of.
const (
	otherGroup      = "another group"
	clockSet        = "clock set"
	clockSetWaiting = "clock set back while steps abort"
	clocksSet       = "all clocks set"
	night           = "night"
	offsetsMoved    = "offsets moved"
	restarted       = "brokers restarted"
	logCut          = "log cut"
)

// kind is a kind of fault.
type kind struct {
	name        string
	least, more time.Duration // it takes at least the one, and up to the other longer
	// do has it happen, and returns what was hit, "" for nothing. It returns when the fault is over.
	do func(w *world, ctx context.Context, tr trouble) string
}

// once has the kinds that a plan has once at most.
var once = map[string]bool{otherGroup: true, night: true, logCut: true}

// kinds are all kinds of faults, in the order in which seeds know them.
func kinds() []kind {
	const second = time.Second
	return []kind{
		{"kill", 200 * time.Millisecond, 10 * second, (*world).kill},
		{"all killed", 200 * time.Millisecond, 10 * second, (*world).killAll},
		{"stop", 200 * time.Millisecond, 5 * second, (*world).stop},
		{"freeze", session, 12 * second, (*world).freeze},
		{"black hole", 300 * time.Millisecond, 12 * second, (*world).blackHole},
		{"commit's answer lost", second, 4 * second, onWire((*kafkatest.Wire).DropResponse, kmsg.EndTxn)},
		{"commit lost", second, 4 * second, onWire((*kafkatest.Wire).DropRequest, kmsg.EndTxn)},
		{"commit held", 500 * time.Millisecond, 12 * second, onWire((*kafkatest.Wire).HoldRequest, kmsg.EndTxn)},
		{"commit's answer held", 500 * time.Millisecond, 12 * second, onWire(holdAnswers, kmsg.EndTxn)},
		{"offset commit held", 500 * time.Millisecond, 12 * second,
			onWire((*kafkatest.Wire).HoldRequest, kmsg.TxnOffsetCommit)},
		{"produce's answer lost", second, 4 * second, onWire((*kafkatest.Wire).DropResponse, kmsg.Produce)},
		{"heartbeats held", session, 8 * second, onWire(holdAll, kmsg.Heartbeat)},
		{"join held", session, 8 * second, onWire(holdAnswers, kmsg.JoinGroup)},
		{"transactions fenced", second, 4 * second, (*world).fence},
		{"another instance joins", second, 8 * second, (*world).join},
		{otherGroup, 9 * second, 6 * second, (*world).otherGroup},
		{"leader moved", 0, 0, (*world).moveLeader},
		{"leaders shuffled", 0, 0, (*world).shuffle},
		{"coordinators moved", 0, 0, (*world).moveCoordinators},
		{"broker's error", 500 * time.Millisecond, 6 * second, (*world).brokerError},
		{"target takes no writes", 500 * time.Millisecond, 8 * second, (*world).closeTarget},
		{"foreign transaction", 200 * time.Millisecond, 8 * second, (*world).foreign},
		{clockSetWaiting, second, 6 * second, (*world).setClockWaiting},
		{clockSet, second, 10 * second, (*world).setClock},
		{clocksSet, second, 10 * second, (*world).setClocks},
		{"member removed", 0, 0, (*world).removeMember},
		{"rebalance storm", 2 * second, 5 * second, (*world).storm},
		{offsetsMoved, 0, 0, (*world).moveOffsets},
		{"standby promoted", session, 8 * second, (*world).promote},
		{"disk fails", 500 * time.Millisecond, 10 * second, (*world).failDisk},
		{"setting altered", 500 * time.Millisecond, 12 * second, (*world).alter},
		{"target recreated", 200 * time.Millisecond, 14 * second, (*world).recreate},
		{"target grows", 0, 0, (*world).grow},
		{"compacted", 0, 0, (*world).compact},
		{night, 2 * second, 8 * second, (*world).night},
		{restarted, 0, 0, (*world).restartBrokers},
		{logCut, 0, 0, (*world).cutLog},
	}
}

// strike has a fault happen, and notes it if it hit, with the states that the instance's partitions were in meanwhile.
func (w *world) strike(ctx context.Context, tr trouble) {
	const lookEvery = 25 * time.Millisecond
	for _, k := range kinds() {
		if k.name != tr.Kind {
			continue
		}
		from, states := time.Now(), w.statesOf(tr.Host)
		over, looked := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(looked)
			for {
				select {
				case <-over:
					return
				case <-time.After(lookEvery):
					maps.Copy(states, w.statesOf(tr.Host))
				}
			}
		}()
		hit := k.do(w, ctx, tr)
		close(over)
		<-looked
		if hit != "" {
			w.mu.Lock()
			w.faults = append(w.faults, history.Fault{Kind: tr.Kind, On: w.hosts[tr.Host].name, From: from,
				To: time.Now(), Note: hit})
			for state := range states {
				w.coverage[cell{tr.Kind, state}]++
			}
			w.mu.Unlock()
		}
	}
}

func (w *world) kill(ctx context.Context, tr trouble) string {
	h := w.hosts[tr.Host]
	left := tr.Arg % disks
	if !h.kill(left, uint64(tr.Arg)) {
		return ""
	}
	w.wait(ctx, tr.For)
	h.start()
	return fmt.Sprint("of the disk is left: ", [...]string{"what was synced", "what was synced, and more", "nothing",
		"what was there before", "another's"}[left])
}

// killAll kills all instances: requests come while nobody runs.
func (w *world) killAll(ctx context.Context, tr trouble) string {
	killed, up := w.allDown(func(i int) int { return (tr.Arg + i) % disks })
	w.wait(ctx, tr.For)
	up()
	if killed == 0 {
		return ""
	}
	return fmt.Sprint(killed, " instances")
}

// synced leaves of all disks what was synced.
func synced(int) int { return diskSynced }

// allDown kills all instances, and none is started before up is called.
func (w *world) allDown(left func(int) int) (killed int, up func()) {
	for i, h := range w.hosts {
		h.hold()
		if h.kill(left(i), uint64(i)) {
			killed++
		}
	}
	return killed, func() {
		for _, h := range w.hosts {
			h.release()
		}
		for _, h := range w.serving() {
			h.start()
		}
	}
}

// fence has somebody end all transactions, as instances do with those of processes that are gone, at the moment when an
// instance is not told of a commit: the coordinator does not say any more how that transaction ended.
func (w *world) fence(ctx context.Context, tr trouble) string {
	l := w.hosts[tr.Host].runs()
	if l == nil {
		return ""
	}
	until, cancel := context.WithTimeout(ctx, tr.For)
	defer cancel()
	f := l.wire.DropResponse(kmsg.EndTxn.Int16(), 1)
	defer f.Release()
	if f.Wait(until) != nil {
		return ""
	}
	again := l.wire.Hold(kmsg.EndTxn.Int16()) // the client asks again, and is not to be told before
	defer again.Release()
	all, err := w.admin.ListTransactions(ctx, nil, nil)
	if err != nil {
		return ""
	}
	fenced := 0
	for _, id := range all.TransactionalIDs() {
		if !strings.HasPrefix(id, repair.TransactionalIDPrefix(group)) {
			continue
		}
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 30_000, -1, -1
		if resp, err := req.RequestWith(ctx, w.any); err == nil && resp.ErrorCode == 0 {
			fenced++
		}
	}
	return fmt.Sprint(fenced, " transactional IDs")
}

// join has one more instance for a time.
func (w *world) join(ctx context.Context, tr trouble) string {
	h := w.hosts[w.plan.Settings.Instances]
	h.start()
	got := w.most(ctx, h, tr.For)
	if tr.Arg%2 == 0 {
		h.stop()
	} else {
		h.kill(tr.Arg%disks, uint64(tr.Arg))
	}
	if got == 0 {
		return ""
	}
	return fmt.Sprint("it has had ", got, " partitions")
}

// most is how many partitions an instance has at most within a time. Another fault may kill it meanwhile.
func (w *world) most(ctx context.Context, h *host, within time.Duration) (most int) {
	for until := time.Now().Add(within); time.Now().Before(until) && ctx.Err() == nil; w.wait(ctx, watchEvery) {
		most = max(most, len(h.partitions()))
	}
	return most
}

// otherGroup has an instance of another group take over all partitions for a time, while those that had them run on.
// Then they take over again.
func (w *world) otherGroup(ctx context.Context, tr trouble) string {
	h := w.hosts[w.plan.Settings.Instances+1]
	h.start()
	got := w.most(ctx, h, tr.For)
	if tr.Arg%2 == 0 {
		h.stop()
	} else {
		h.kill(diskSynced, uint64(tr.Arg))
	}
	for _, h := range w.serving() {
		h.acceptGroup()
		h.stop()
		h.start()
	}
	if got == 0 {
		return ""
	}
	return fmt.Sprint("it has had ", got, " partitions")
}

func (w *world) stop(ctx context.Context, tr trouble) string {
	h := w.hosts[tr.Host]
	if !h.stop() {
		return ""
	}
	w.wait(ctx, tr.For)
	h.start()
	return "in order"
}

// freeze has an instance stand still, and be cut off. It may wake up before its network is back.
func (w *world) freeze(ctx context.Context, tr trouble) string {
	l := w.hosts[tr.Host].runs()
	if l == nil || !l.freeze() {
		return ""
	}
	l.cutOff()
	w.wait(ctx, tr.For)
	l.thaw()
	without := time.Duration(tr.Arg%4) * wakeStep
	w.wait(ctx, without)
	l.reconnect()
	return fmt.Sprintf("%s, and without network for %s", tr.For, without)
}

// wakeStep is a part of how long an instance that wakes up may be without network.
const wakeStep = 1500 * time.Millisecond

// blackHole cuts an instance off. It goes on.
func (w *world) blackHole(ctx context.Context, tr trouble) string {
	l := w.hosts[tr.Host].runs()
	if l == nil {
		return ""
	}
	l.cutOff()
	w.wait(ctx, tr.For)
	l.reconnect()
	return tr.For.String()
}

func holdAnswers(w *kafkatest.Wire, key int16, _ int) *kafkatest.Fault { return w.HoldResponse(key) }
func holdAll(w *kafkatest.Wire, key int16, _ int) *kafkatest.Fault     { return w.Hold(key) }

// onWire returns a fault between an instance and its brokers: one request is concerned, or all of them for a time.
func onWire(inject func(w *kafkatest.Wire, key int16, n int) *kafkatest.Fault, key kmsg.Key) func(*world,
	context.Context, trouble) string {
	return func(w *world, ctx context.Context, tr trouble) string {
		l := w.hosts[tr.Host].runs()
		if l == nil {
			return ""
		}
		n := 1
		if tr.Arg%3 == 0 {
			n = kafkatest.Every
		}
		f := inject(l.wire, key.Int16(), n)
		w.wait(ctx, tr.For)
		f.Release()
		if f.Hits() == 0 {
			return ""
		}
		return fmt.Sprint(f.Hits(), " of ", key.Name())
	}
}

func (w *world) moveLeader(_ context.Context, tr trouble) string {
	all := allTopics()
	topic, partition, to := all[tr.Arg%len(all)], int32(tr.Arg/7%partitions), int32(tr.Arg/31%brokers)
	if err := w.cluster.move(topic, partition, to); err != nil {
		if topic == spare {
			return "" // it is being recreated
		}
		w.refuse("move a leader: %v", err)
	}
	return fmt.Sprintf("%s/%d to %d", topic, partition, to)
}

func (w *world) shuffle(context.Context, trouble) string {
	w.cluster.on((*kfake.Cluster).ShufflePartitionLeaders)
	return "all"
}

func (w *world) moveCoordinators(context.Context, trouble) string {
	w.cluster.on((*kfake.Cluster).RehashCoordinators)
	return "all"
}

// brokerErrors are answers of brokers. With the second of each kind the request was done.
func brokerErrors() []kfake.Fault {
	changelog, events := topics.Changelog(requests), topics.Events(requests)
	return []kfake.Fault{
		{Keys: []kmsg.Key{kmsg.EndTxn}, TopLevel: true, Err: kerr.ConcurrentTransactions, Count: 3},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TopLevel: true, Err: kerr.CoordinatorNotAvailable, Count: 3},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TopLevel: true, Err: kerr.CoordinatorLoadInProgress, Count: 30},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TopLevel: true, Err: kerr.UnknownServerError},
		{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Topic: changelog, Err: kerr.ConcurrentTransactions, Count: 3},
		{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ConcurrentTransactions, Count: 5},
		{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Topic: requests, Err: kerr.RequestTimedOut},
		{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Topic: requests, Err: kerr.CoordinatorLoadInProgress, Count: 10},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: changelog, Err: kerr.RequestTimedOut, Count: 2},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: changelog, Err: kerr.NotEnoughReplicasAfterAppend},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: changelog, Err: kerr.NotLeaderForPartition, Count: 4},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: target, Err: kerr.RequestTimedOut, Count: 2},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: target, Err: kerr.NotEnoughReplicas, Count: 20},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: target, Err: kerr.UnknownServerError, Count: 2},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: events, Err: kerr.NotEnoughReplicasAfterAppend, Count: 2},
		{Keys: []kmsg.Key{kmsg.OffsetFetch}, Group: group, Err: kerr.CoordinatorLoadInProgress, Count: 10},
		{Keys: []kmsg.Key{kmsg.Fetch}, Topic: changelog, Err: kerr.UnknownLeaderEpoch, Count: 5},
		{Keys: []kmsg.Key{kmsg.Fetch}, Topic: requests, Err: kerr.NotLeaderForPartition, Count: 5},
	}
}

func (w *world) brokerError(ctx context.Context, tr trouble) string {
	all := brokerErrors()
	f := all[tr.Arg%len(all)]
	h := w.cluster.fault(f)
	w.wait(ctx, tr.For)
	h.Remove()
	if h.Hits() == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s: %s", h.Hits(), f.Keys[0].Name(), f.Err.Message)
}

// closeTarget has one partition of the target refuse what is written to it, or all of them.
func (w *world) closeTarget(ctx context.Context, tr trouble) string {
	errs := []*kerr.Error{kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.LeaderNotAvailable}
	f := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: target, Err: errs[tr.Arg%len(errs)], Count: -1}
	if tr.Arg%2 == 0 {
		f.Partitions = []int32{int32(tr.Arg / 2 % partitions)}
	}
	h := w.cluster.fault(f)
	w.wait(ctx, tr.For)
	h.Remove()
	if h.Hits() == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s: %s", h.Hits(), f.Keys[0].Name(), f.Err.Message)
}

// foreign has a producer of somebody else write requests in a transaction, and commit, abort or abandon it.
func (w *world) foreign(ctx context.Context, tr trouble) string {
	const abandoned = 2
	cl := w.client(kgo.TransactionalID(fmt.Sprint("foreign-", tr.Arg)), kgo.TransactionTimeout(10*time.Second))
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		return ""
	}
	for i := range 4 {
		a := ask{ID: fmt.Sprintf("foreign-%d-%d", tr.Arg, i), Action: history.Schedules,
			Due: tr.At + time.Duration(i)*time.Second}
		if err := cl.ProduceSync(ctx, a.record(w.begun, "")).FirstErr(); err != nil {
			w.log.note("a foreign producer fails: %v", err)
			break
		}
	}
	w.wait(ctx, tr.For)
	how := tr.Arg % 3
	if how != abandoned {
		if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(how == 0)); err != nil {
			w.log.note("a foreign transaction does not end: %v", err)
		}
	}
	return [...]string{"committed", "aborted", "abandoned"}[how]
}

// setClock sets an instance's clock, ahead or back, and later right again.
func (w *world) setClock(ctx context.Context, tr trouble) string {
	return w.shift(ctx, tr, w.hosts[tr.Host])
}

// setClocks sets the clocks of all instances together: apart from the brokers'.
func (w *world) setClocks(ctx context.Context, tr trouble) string {
	return w.shift(ctx, tr, w.hosts...)
}

func (w *world) shift(ctx context.Context, tr trouble, hosts ...*host) string {
	steps := []time.Duration{150 * time.Millisecond, 2 * time.Second, 20 * time.Second, -150 * time.Millisecond,
		-2 * time.Second, -20 * time.Second}
	by := steps[tr.Arg%len(steps)]
	for _, h := range hosts {
		h.setClock(by)
	}
	w.wait(ctx, tr.For)
	for _, h := range hosts {
		h.setClock(-by)
	}
	return "by " + by.String()
}

// setClockWaiting sets an instance's clock back while no step can be committed: firings that are planned are not due
// any more when they are sealed again.
func (w *world) setClockWaiting(ctx context.Context, tr trouble) string {
	const back = 3 * time.Second
	// With an error that kgo repeats by itself, most steps would be committed as they were sealed before.
	f := w.cluster.fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Topic: requests, Err: kerr.RequestTimedOut, Count: -1})
	w.wait(ctx, tr.For/2)
	h := w.hosts[tr.Host]
	h.setClock(-back)
	f.Remove()
	w.wait(ctx, tr.For/2)
	h.setClock(back)
	if f.Hits() == 0 {
		return ""
	}
	return fmt.Sprint(f.Hits(), " offset commits refused")
}

func (l *logBuffer) note(format string, args ...any) {
	fmt.Fprintf(l, "time=%s level=NOTE msg=%s\n", time.Now().Format(time.RFC3339Nano),
		strconv.Quote(fmt.Sprintf(format, args...)))
}
