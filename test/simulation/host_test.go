package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kit/memory"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
)

const (
	session = 6 * time.Second
	// rebalance is how long a group waits for members to join. Since kfake miscounts those that are replaced while they
	// wait for their assignment, it sometimes waits that long though all have joined; brokers do not.
	rebalance = 15 * time.Second
	// restart is how long it takes until an instance runs again that has ended by itself.
	restart = 500 * time.Millisecond
)

// host is a machine: a disk, a clock, and one instance after another.
type host struct {
	w      *world
	number int
	name   string
	cfg    config.Config
	skew   atomic.Int64            // nanoseconds by which its clock is ahead
	ill    atomic.Pointer[illness] // of its disk; nil: none

	mu   sync.Mutex // guards what follows
	disk *vfs.MemFS
	old  []*vfs.MemFS // as the disk was before; the oldest first
	life *life        // nil: nothing runs
	off  int          // how many want nothing to run
}

// life is one run of an instance.
type life struct {
	host    *host
	wire    *kafkatest.Wire
	cancel  context.CancelFunc
	done    chan struct{}
	reload  chan *config.Config
	process atomic.Pointer[string]        // its ID, as it logs it
	thawed  atomic.Pointer[chan struct{}] // closed when it is no longer frozen; nil: it is not

	mu    sync.Mutex // guards what follows
	parts map[int32]*partition.Partition
	cuts  int // how many faults have it cut off
}

func (w *world) newHost(number int) *host {
	s := w.plan.Settings
	c := config.Default()
	c.Brokers, c.Requests, c.Targets = seeds(), []string{requests}, []string{"*"}
	c.Group, c.HTTP, c.Memory, c.SessionTimeout = group, "", config.MinMemory, session
	c.RebalanceTimeout = rebalance
	c.DataDir = w.dir // the same for all, so that one can be given the disk of another
	c.Standbys, c.Lanes, c.SubPartitions, c.TransactionalIDs, c.FiringInterval = s.Standbys, s.Lanes, s.SubPartitions,
		s.TransactionalIDs, s.FiringInterval
	h := &host{w: w, number: number, name: fmt.Sprint("wc-", number), cfg: c, disk: vfs.NewCrashableMem()}
	if s.Static {
		h.cfg.InstanceID = h.name
	}
	policy := h.cfg.PolicyOf(requests)
	policy.Events = true
	h.cfg.Tenants = map[string]config.Policy{requests: policy}
	if err := h.cfg.Validate(); err != nil {
		w.t.Fatal(err)
	}
	return h
}

// memory is what an instance may use, nil for the least that can be set.
func (s *settings) memory() *memory.Shares {
	if !s.Tight {
		return nil
	}
	m := memory.Divide(int64(config.MinMemory))
	m.Wheel, m.Dirty, m.Requests, m.Firings = 12<<10, 24<<10, 96<<10, 48<<10
	return &m
}

// acceptGroup lets instances that start from now on take over from another group.
func (h *host) acceptGroup() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cfg.AcceptGroup = true
}

// now is the host's clock.
func (h *host) now() time.Time { return time.Now().Add(time.Duration(h.skew.Load())) }

func (h *host) reading() history.Reading {
	return history.Reading{Instance: h.name, At: time.Now(), Shows: h.now().UnixMilli()}
}

// setClock sets the host's clock ahead, or back if by is negative.
func (h *host) setClock(by time.Duration) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	before := h.reading()
	h.skew.Add(int64(by))
	h.w.readings = append(h.w.readings, before, h.reading())
}

// start starts an instance, unless one runs.
func (h *host) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life != nil || h.off > 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{host: h, wire: kafkatest.NewWireOver(h.w.network.dial), cancel: cancel, done: make(chan struct{}),
		reload: make(chan *config.Config), parts: make(map[int32]*partition.Partition)}
	h.life = l
	cfg, disk := h.cfg, h.disk
	log := slog.New(&named{slog.NewTextHandler(h.w.log, nil), l}).With("host", h.name)
	h.w.running.Go(func() {
		defer close(l.done)
		err := node.RunWith(ctx, &cfg, log, node.Options{
			Dial: l.wire.Dial, FS: errorfs.Wrap(disk, errorfs.InjectorFunc(h.diskError)), Now: h.now,
			FlushInterval: h.w.plan.Settings.FlushInterval, Memory: h.w.plan.Settings.memory(),
			BeforeCheckpoint: func(string, int32) { l.awaitThaw() },
			Assigned:         l.assigned, Reload: l.reload,
		})
		if ctx.Err() == nil {
			log.Error("the instance has ended by itself", "err", err)
			h.again(l)
		}
	})
}

// again starts an instance in place of one that has ended by itself, as a supervisor does.
func (h *host) again(l *life) {
	l.wire.Close()
	<-time.After(restart)
	h.mu.Lock()
	ours := h.life == l
	if ours {
		h.life = nil
	}
	h.mu.Unlock()
	if ours {
		h.start()
	}
}

// named notes the ID of the process that logs.
type named struct {
	slog.Handler
	life *life
}

// Handle implements slog.Handler.
func (n *named) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "process" {
			process := a.Value.String()
			n.life.process.Store(&process)
		}
		return true
	})
	return n.Handler.Handle(ctx, r)
}

func (n *named) WithAttrs(as []slog.Attr) slog.Handler {
	return &named{n.Handler.WithAttrs(as), n.life}
}
func (n *named) WithGroup(g string) slog.Handler { return &named{n.Handler.WithGroup(g), n.life} }

func (l *life) assigned(p *partition.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parts[p.Life().Changelog().Partition] = p
}

func (l *life) partitions() map[int32]*partition.Partition {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.parts)
}

// runs is the life that runs, nil if none does.
func (h *host) runs() *life {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life
}

// partitions are those that the instance has, by number.
func (h *host) partitions() map[int32]*partition.Partition {
	l := h.runs()
	if l == nil {
		return nil
	}
	all := l.partitions()
	maps.DeleteFunc(all, func(_ int32, p *partition.Partition) bool { return p.Status().State == ownership.Gone })
	return all
}

// What is left of a disk after a kill.
const (
	diskSynced = iota // what was synced
	diskTorn          // and some of what was not
	diskLost
	diskOld     // as it was some seconds before
	diskAnother // nothing, and it is replaced by a copy of another instance's
	disks
)

// kill ends the instance as the loss of its machine's power does.
func (h *host) kill(left int, seed uint64) bool {
	l := h.runs()
	if l == nil {
		return false
	}
	l.wire.Close()
	l.cancel()
	l.thaw()
	l.wire.Blackhole(false)
	another := h.w.hosts[(h.number+1)%len(h.w.hosts)].afterPowerCut()
	h.mu.Lock() // never while something is waited for: in a bubble no time passes for who waits for a mutex
	defer h.mu.Unlock()
	if h.life != l {
		return false
	}
	h.life = nil
	if process := l.process.Load(); process != nil {
		h.w.running.Go(func() { h.w.expire(*process) })
	}
	torn := vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(seed, 1))}
	switch {
	case left == diskTorn:
		h.disk = h.disk.CrashClone(torn)
	case left == diskLost:
		h.disk, h.old = vfs.NewCrashableMem(), nil
	case left == diskOld && len(h.old) > 0:
		h.disk, h.old = h.old[0].CrashClone(vfs.CrashCloneCfg{}), nil
	case left == diskAnother:
		h.disk, h.old = another, nil
	default:
		h.disk = h.disk.CrashClone(vfs.CrashCloneCfg{})
	}
	h.w.keepDisk(disk{h, h.disk.CrashClone(vfs.CrashCloneCfg{})})
	return true
}

// expire takes a process that was killed out of its groups when its session is over. kfake forgets to if it was killed
// while it waited for the answer to a join.
func (w *world) expire(process string) {
	<-time.After(session + time.Second)
	for _, name := range []string{group, other} {
		if m := w.member(
			name, func(m *kfake.GroupMember) bool {
				return m.InstanceID == nil && strings.HasSuffix(m.ClientID, process)
			}); m != nil {
			w.log.note("%s was still a member of %s: %v", m.MemberID, name, w.remove(name, m))
		}
	}
}

// member returns a member of a group that is as wanted, nil if there is none.
func (w *world) member(name string, wanted func(*kfake.GroupMember) bool) *kfake.GroupMember {
	if is := w.cluster.group(name); is != nil {
		for i := range is.Members {
			if wanted(&is.Members[i]) {
				return &is.Members[i]
			}
		}
	}
	return nil
}

// remove takes a member out of a group, as an admin does.
func (w *world) remove(name string, m *kfake.GroupMember) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = name, m.MemberID
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: m.MemberID, InstanceID: m.InstanceID}}
	resp, err := req.RequestWith(context.Background(), w.any)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Members[0].ErrorCode)
}

// endRounds takes all members out of a group whose round has lasted longer than any broker lets it. kfake counts a
// member that is expired while it waits for its assignment as one that has joined, and less: then no round ends.
func (w *world) endRounds(ctx context.Context) {
	const roundLimit = 75 * time.Second
	epoch, since := -1, time.Now()
	for ; ctx.Err() == nil; w.wait(ctx, roundLimit/10) {
		is := w.cluster.group(group)
		if is == nil || is.State != "PreparingRebalance" || int(is.Epoch) != epoch {
			epoch, since = -1, time.Now()
			if is != nil {
				epoch = int(is.Epoch)
			}
			continue
		}
		if time.Since(since) > roundLimit {
			for i := range is.Members {
				w.log.note("%s was still a member: %v", is.Members[i].MemberID, w.remove(group, &is.Members[i]))
			}
			w.mu.Lock() // until its members have noticed, nobody fires, and no broker of Kafka would do that
			w.stuck = append(
				w.stuck, history.Fault{Kind: "round that kfake never ends", From: since,
					To: time.Now().Add(roundLimit)})
			w.mu.Unlock()
			since = time.Now()
		}
	}
}

// stop ends the instance in order.
func (h *host) stop() bool {
	h.mu.Lock()
	l := h.life
	h.life = nil
	h.mu.Unlock()
	if l == nil {
		return false
	}
	l.cancel()
	<-l.done
	l.wire.Close()
	return true
}

// hold keeps instances from being started, until release was called as often.
func (h *host) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.off++
}

func (h *host) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.off--
}

// end stops the instance for good.
func (h *host) end() {
	h.hold()
	h.stop()
}

// afterPowerCut is what a power cut would leave of the disk.
func (h *host) afterPowerCut() *vfs.MemFS {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.disk.CrashClone(vfs.CrashCloneCfg{})
}

// photograph notes what a power cut would leave of the disk. While nothing runs, that stays the same.
func (h *host) photograph() {
	if h.runs() == nil {
		return
	}
	is := h.afterPowerCut()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.old = append(h.old, is)
	h.old = slices.Delete(h.old, 0, max(0, len(h.old)-2))
}

// illness is what is wrong with a disk.
type illness struct {
	ops  []errorfs.OpKind // that fail
	left atomic.Int64     // so many of them
}

// diskError is the error of an operation on the disk. Only operations on tables fail, and only a few: a store that ends
// is not closed, because its process ends, and leaves goroutines, which a bubble does not allow.
func (h *host) diskError(op errorfs.Op) error {
	ill := h.ill.Load()
	if ill == nil || !strings.HasSuffix(op.Path, ".sst") || !slices.Contains(ill.ops, op.Kind) || ill.left.Add(-1) < 0 {
		return nil
	}
	return errorfs.ErrInjected
}

// freeze has it apply nothing before thaw, and reports whether it was not so before.
func (l *life) freeze() bool {
	thawed := make(chan struct{})
	return l.thawed.CompareAndSwap(nil, &thawed)
}

func (l *life) thaw() {
	if thawed := l.thawed.Swap(nil); thawed != nil {
		close(*thawed)
	}
}

// cutOff cuts it off from all brokers, until reconnect was called as often.
func (l *life) cutOff() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts++
	l.wire.Blackhole(true)
}

func (l *life) reconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cuts--; l.cuts == 0 {
		l.wire.Blackhole(false)
	}
}

func (l *life) awaitThaw() {
	if thawed := l.thawed.Load(); thawed != nil {
		<-*thawed
	}
}
