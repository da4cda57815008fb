package simulation

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/test/witness"
)

const (
	// startLimit is how long the first instances may take until they serve all partitions.
	startLimit = time.Minute
	// settleLimit is how long it may take until everything is settled, once no fault is left.
	settleLimit = 4 * time.Minute
	// settle is how long a request or a due timer may wait while no fault is there.
	settle = 15 * time.Second
	// quiet is for how long nothing must be left to do.
	quiet = 2 * time.Second
	// lastGoroutines is how long kgo's goroutines may take to end by themselves, after Close.
	lastGoroutines = time.Minute
	// watchEvery is how often partitions are looked at, photographEvery how often disks are copied.
	watchEvery      = 50 * time.Millisecond
	photographEvery = 4 * time.Second
	// lagEvery is how often the group's offsets are read.
	lagEvery = 3 * time.Second
	// atRest is how long nothing happens in the end. What is late is judged over settle without a fault, settle behind
	// the last one.
	atRest = 2*settle + time.Second
	// sendLimit is how long it may take until a request is in the log.
	sendLimit = 3 * time.Minute
)

// world is one life of a cluster. It is in a bubble.
type world struct {
	t       *testing.T
	plan    *plan
	dir     string
	begun   time.Time // the first request was sent
	ended   time.Time // everything was settled
	cluster cluster
	network *network
	any     *kgo.Client    // for whatever is asked of brokers
	admin   *kadm.Client   // the same
	hosts   []*host        // those of serving, one that may join them, and one of another group
	running sync.WaitGroup // lives of instances
	log     *logBuffer
	watcher *watcher
	altered sync.Map // settings that somebody has altered: an alteration without its value

	mu           sync.Mutex // guards what follows
	faults       []history.Fault
	stuck        []history.Fault   // that are kfake's own: see endRounds
	readings     []history.Reading // of clocks that were set
	answers      []witness.Answer
	ledgers      []witness.Ledger
	lags         []witness.Lag
	disks        []disk   // of instances that have ended
	refused      []string // what no client could do
	cuts         []cut
	rates        []history.Rate
	recreated    time.Time // the spare target; zero: it was not
	live         map[*partition.Partition]bool
	acquisitions int
	coverage     map[cell]int
	told         int // IDs in answers
	excused      int // those of them that may be from the past
}

// disk is what an instance has left.
type disk struct {
	of *host
	fs *vfs.MemFS
}

// cell is a cell of the table of coverage.
type cell struct{ fault, state string }

// result is what became of a plan.
type result struct {
	history      *witness.History
	refused      []string // what should have been possible
	acquisitions int
	coverage     map[cell]int
	took         time.Duration // within the bubble
	log          string
	told         int // IDs in answers
	excused      int // those of them that may be from the past
}

// run runs a plan. It is called in a bubble.
func run(t *testing.T, p *plan, log *logBuffer) *result {
	dir := t.TempDir()
	w := &world{t: t, plan: p, dir: dir, network: new(network), log: log, live: make(map[*partition.Partition]bool),
		coverage: make(map[cell]int)}
	began := time.Now()
	w.open()
	ctx, cancel := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	for i := range p.Settings.Instances + 2 {
		w.hosts = append(w.hosts, w.newHost(i))
	}
	stranger := w.hosts[p.Settings.Instances+1]
	stranger.cfg.Group, stranger.cfg.InstanceID, stranger.cfg.AcceptGroup = other, "", true
	for _, h := range w.serving() {
		h.start()
	}
	beside.Go(func() { w.watch(ctx) })
	beside.Go(func() { w.photograph(ctx) })
	beside.Go(func() { w.endRounds(ctx) })
	if w.await(startLimit, "all partitions are live", func() bool { return len(w.owners()) == partitions }) {
		w.watcher = w.newWatcher()
		beside.Go(func() { w.watcher.run(ctx) })
		w.play(ctx, &beside)
	}
	w.ended = time.Now()
	cancel()
	beside.Wait()
	w.end()
	took := time.Since(began)
	h := w.history(w.views())
	return &result{h, w.refused, w.acquisitions, w.coverage, took, w.log.String(), w.told, w.excused}
}

// brokersDir has the brokers' data, if they are restarted.
func (w *world) brokersDir() string { return filepath.Join(w.dir, "brokers") }

// seeds are the addresses of the brokers.
func seeds() (all []string) {
	for i := range brokers {
		all = append(all, fmt.Sprint("localhost:", firstPort+i))
	}
	return all
}

// serving are the hosts whose instances run unless a fault has it otherwise.
func (w *world) serving() []*host { return w.hosts[:w.plan.Settings.Instances] }

// open starts the brokers and makes the topics that users make.
func (w *world) open() {
	ports := make([]int, brokers)
	for i := range ports {
		ports[i] = firstPort + i
	}
	w.cluster.opts = []kfake.Opt{
		kfake.NumBrokers(brokers), kfake.ClusterID("simulated"), kfake.SeedTopics(partitions, requests, target, spare),
		kfake.GroupMinSessionTimeout(time.Second), kfake.Ports(ports...), kfake.ListenFn(w.network.Listen),
	}
	if w.plan.has(restarted, logCut) { // otherwise what they have is in memory, which is faster
		w.cluster.dir = w.brokersDir()
		w.cluster.opts = append(w.cluster.opts, kfake.DataDir(w.cluster.dir))
	}
	if err := w.cluster.start(); err != nil {
		w.t.Fatal(err)
	}
	w.any = w.client()
	w.admin = kadm.NewClient(w.any)
}

// client returns a client that no fault of an instance touches.
func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds()...), kgo.Dialer(w.network.dial), kgo.MetadataMinAge(250 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	return cl
}

// play sends the requests while faults come and go, and then waits until everything is settled.
func (w *world) play(ctx context.Context, beside *sync.WaitGroup) {
	w.begun = time.Now()
	if w.plan.has(clockSet, clockSetWaiting, clocksSet) {
		for _, h := range w.hosts {
			w.readings = append(w.readings, h.reading())
		}
	}
	var playing sync.WaitGroup
	playing.Go(func() { w.send(ctx) })
	playing.Go(func() { w.putCalendars(ctx) })
	playing.Go(func() { w.changeRates(ctx) })
	for _, tr := range w.plan.Troubles {
		playing.Go(func() {
			w.wait(ctx, time.Until(w.begun.Add(tr.At)))
			w.strike(ctx, tr)
		})
	}
	beside.Go(func() { w.read(ctx) })
	beside.Go(func() { w.watchLag(ctx) })
	playing.Wait()
	for _, h := range w.serving() {
		h.start()
	}
	settled := time.Time{}
	if !w.await(settleLimit, "everything is settled", func() bool {
		if !w.settled() {
			settled = time.Time{}
			return false
		}
		if settled.IsZero() {
			settled = time.Now()
		}
		return time.Since(settled) > quiet
	}) {
		w.refuse("not settled: %s", w.state())
	}
	w.wait(ctx, atRest)
	w.readLedgers()
	w.readLag(ctx, true)
	w.askAll(ctx)
	w.countAll(ctx)
}

// wait waits for a time, or for the end of ctx.
func (w *world) wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// await waits for a condition and reports whether it came true in time.
func (w *world) await(limit time.Duration, what string, is func() bool) bool {
	for until := time.Now().Add(limit); time.Now().Before(until); <-time.After(4 * watchEvery) {
		if is() {
			return true
		}
	}
	w.refuse("in vain waited for %s: %s", limit, what)
	return false
}

func (w *world) refuse(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, fmt.Sprintf(format, args...))
}

// sources are those of the last request for each ID that was acknowledged.
type sources struct{ sync.Map }

func (s *sources) of(id string) string {
	if of, ok := s.Load(id); ok {
		return of.(string)
	}
	return waterclock.Source{Topic: requests}.String() // perhaps another ID's
}

// putCalendars puts the calendars, each when it is its time.
func (w *world) putCalendars(ctx context.Context) {
	cl := w.client(kgo.RecordDeliveryTimeout(sendLimit), kgo.ProducerLinger(0))
	defer cl.Close()
	for i := range w.plan.Changes {
		c := &w.plan.Changes[i]
		w.wait(ctx, time.Until(w.begun.Add(c.At)))
		if err := cl.ProduceSync(ctx, c.record(w.begun)).FirstErr(); err != nil {
			w.refuse("put the calendar %s: %v", c.Name, err)
		}
	}
}

// send sends the requests, each when it is its time. It returns when all are acknowledged.
func (w *world) send(ctx context.Context) {
	cl := w.client(kgo.RecordDeliveryTimeout(sendLimit), kgo.ProducerLinger(0))
	defer cl.Close()
	if _, _, err := cl.ProducerID(ctx); err != nil { // two brokers' sinks that ask for it at once would hang: see stuck
		w.refuse("begin to send: %v", err)
	}
	var last sources
	for i := range w.plan.Asks {
		a := &w.plan.Asks[i]
		w.wait(ctx, time.Until(w.begun.Add(a.At)))
		cl.Produce(ctx, a.record(w.begun, last.of(a.ID)), func(r *kgo.Record, err error) {
			if err != nil {
				w.refuse("send a request for %s: %v", r.Key, err)
			}
			last.Store(a.ID, waterclock.Source{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}.String())
		})
	}
	if err := cl.Flush(ctx); err != nil {
		w.refuse("flush: %v", err)
	}
}

// owners are the partitions that are live, and the hosts that serve them.
func (w *world) owners() map[int32]*partition.Partition {
	all := make(map[int32]*partition.Partition)
	for _, h := range w.hosts {
		for n, p := range h.partitions() {
			if s := p.Status().State; s == ownership.Live {
				all[n] = p
			}
		}
	}
	return all
}

// settled reports whether every partition is live and has nothing to do.
func (w *world) settled() bool {
	owners := w.owners()
	for _, p := range owners {
		s := p.Status()
		if s.Behind != 0 || s.Queued != 0 || s.Overdue != 0 || s.Uncommitted != 0 || s.Parked != 0 ||
			len(s.Deferred) != 0 {
			return false
		}
	}
	return len(owners) == partitions && w.watcher.lacks() == "" && time.Since(w.begun) > w.lastDue()
}

func (w *world) lastDue() (last time.Duration) {
	last = span
	for _, a := range w.plan.Asks {
		last = max(last, a.last())
	}
	return last + time.Second
}

// state says what the partitions are at.
func (w *world) state() string {
	var b strings.Builder
	for _, h := range w.hosts {
		fmt.Fprintf(&b, "%s:", h.name)
		for n, p := range h.partitions() {
			s := p.Status()
			fmt.Fprintf(&b, " %d %v %q behind %d queued %d overdue %v uncommitted %v parked %d "+
				"deferred %v;", n, s.State, s.Reason,
				s.Behind, s.Queued, s.Overdue, s.Uncommitted, s.Parked, s.Deferred)
		}
	}
	fmt.Fprintf(&b, " the group: %+v; ", w.cluster.group(group))
	return b.String() + w.watcher.lacks()
}

// watch looks at the partitions: how often they are acquired.
func (w *world) watch(ctx context.Context) {
	for ; ctx.Err() == nil; w.wait(ctx, watchEvery) {
		for _, p := range w.owners() {
			w.mu.Lock()
			if !w.live[p] {
				w.live[p] = true
				w.acquisitions++
			}
			w.mu.Unlock()
		}
	}
}

func (w *world) photograph(ctx context.Context) {
	for ; ctx.Err() == nil; w.wait(ctx, photographEvery) {
		for _, h := range w.hosts {
			h.photograph()
		}
	}
}

// end ends everything.
func (w *world) end() {
	for _, h := range w.hosts {
		w.running.Go(h.end)
	}
	w.running.Wait()
	for _, h := range w.hosts {
		w.disks = append(w.disks, disk{h, h.disk})
	}
	if w.watcher != nil {
		w.watcher.stop()
	}
	w.admin.Close()
	w.cluster.stop()
	<-time.After(lastGoroutines)
}

// ownTopics are those that the service makes.
func ownTopics() []string {
	return []string{topics.Changelog(requests), topics.DeadLetters(requests), topics.Events(requests)}
}

// allTopics are those that the watcher reads.
func allTopics() []string { return append(ownTopics(), requests, target, spare) }

// logBuffer keeps what all instances log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
