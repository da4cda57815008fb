package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/beats"
	"github.com/waterclock/waterclock/internal/span"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/transaction"
)

const (
	// coordinatorAway is how long requests to the group's coordinator are
	// repeated. When its broker dies the group has no other before Kafka's 9 s
	// (broker.session.timeout.ms) and an election are over. kgo gives heartbeats
	// up after the session timeout, and every partition with them, in all
	// instances at once, although the new coordinator knows the members.
	coordinatorAway = 30 * time.Second
	// heartbeatInterval is how long a member may not know that the group rebalances. A partition that moves is nobody's
	// from its revocation until all members have heard of the next round. Heartbeats are the cheapest of requests.
	heartbeatInterval = 250 * time.Millisecond
	// watchInterval is how often a silent change of membership is looked for.
	watchInterval = 100 * time.Millisecond
	// rejoinPause separates two group clients.
	rejoinPause = 200 * time.Millisecond
	// leaveTimeout bounds the goodbye to the group.
	leaveTimeout = 3 * time.Second
)

// Options of a group membership.
type Options struct {
	Client           []kgo.Opt
	Group            string
	Process          string // the process's ID, 1 to 64 bytes, which no other has ever had
	InstanceID       string // static membership if not empty
	Topics           []string
	SessionTimeout   time.Duration
	RebalanceTimeout time.Duration // >= SessionTimeout: see the package comment
	Leave            bool          // leave the group on stop
	Logger           *slog.Logger
	Now              func() time.Time // the owner's clock, by which confirmations age; nil: time.Now
	// Views returns the local views of changelogs that the process has, the youngest first;
	// nil: it has none. It is called before each join and must be quick.
	Views func() []View
	// Standbys is about partitions that the process does not own; the zero value: there are no copies of them.
	Standbys Standbys
}

// Handler acquires the partitions that come and go. Its methods are called by the
// group client, one at a time.
type Handler interface {
	// Assigned must not block.
	Assigned(t *Token)
	// Revoked drains: while it runs the tokens still live, and the group waits.
	Revoked(ts []*Token)
	// Lost tells of tokens that are dead already.
	Lost(ts []*Token)
}

// Group is one process's membership.
type Group struct {
	o Options
	h Handler

	mu      sync.Mutex // guards what follows
	tokens  map[timer.TopicPartition]*Token
	joined  bool
	problem string      // see Problem
	foreign bool        // see Foreign
	pulse   *pulse      // of the client of the last session; nil before the first
	client  *kgo.Client // of the session; nil between two

	// foreignSaid is when it was last said that others use the group; Run's own.
	foreignSaid  time.Time
	unresponsive bool        // that was logged; Run's own
	asking       *kgo.Client // asks the group beside the group client; Run's own
	// resigned: leave at the end of Run, whatever Options say.
	resigned atomic.Bool
	leaving  atomic.Bool // see HandOver
}

// New returns a membership that Run will begin.
func New(o Options, h Handler) (*Group, error) {
	if o.RebalanceTimeout < o.SessionTimeout {
		return nil, fmt.Errorf("rebalance timeout %s is shorter than the session timeout %s: a member could miss a generation and keep its ID; raise it",
			span.String(o.RebalanceTimeout), span.String(o.SessionTimeout))
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Group{o: o, h: h, tokens: make(map[timer.TopicPartition]*Token)}, nil
}

// Joined reports whether the process is a member with an assignment, perhaps an
// empty one.
func (g *Group) Joined() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.joined
}

// Resign has Run leave the group at its end also where Options have it stay:
// for an instance that has to make room for others. It is called before ctx ends.
func (g *Group) Resign() { g.resigned.Store(true) }

// Run is a member until ctx ends; then it drains everything and leaves. It ends
// by itself, with kerr.InvalidSessionTimeout, if the brokers do not allow the
// session timeout.
func (g *Group) Run(ctx context.Context) (err error) {
	if g.asking, err = kgo.NewClient(g.o.Client...); err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	defer g.asking.Close()
	for ctx.Err() == nil {
		var was transaction.Member
		err := g.look(ctx)
		if err == nil {
			was, err = g.session(ctx)
		}
		if errors.Is(err, kerr.InvalidSessionTimeout) {
			return err
		}
		if foreign(err) {
			g.awaitForeign(ctx, err)
			continue
		}
		g.foreignSaid = time.Time{}
		if err != nil {
			g.o.Logger.Warn("group membership ended, joining again", "group", g.o.Group, "err", err)
		}
		g.awaitName(ctx, was)
		select {
		case <-ctx.Done():
		case <-time.After(rejoinPause):
		}
	}
	return nil
}

// session is the life of one group client. It returns who that was at last.
func (g *Group) session(ctx context.Context) (was transaction.Member, err error) {
	p := &pulse{now: g.o.Now, last: time.Now()}
	l := &lease{pulse: p}
	l.proof = newProof(func(ctx context.Context) error { return l.ask(ctx, g.heartbeat) })
	if g.o.InstanceID != "" {
		l.instance = &g.o.InstanceID
	}
	g.mu.Lock()
	g.pulse = p
	g.mu.Unlock()
	cl, err := g.newClient(l, p)
	if err != nil {
		return was, err
	}
	g.setClient(cl)
	poll, stop := context.WithCancel(context.WithoutCancel(ctx))
	var polling sync.WaitGroup
	refused := make(chan error, 1)
	polling.Go(func() { g.poll(poll, cl, refused) })
	defer func() {
		g.setClient(nil)
		stop()
		was.ID, was.Generation = cl.GroupMetadata()
		was.InstanceID = l.instance
		g.end(cl, l, ctx.Err() != nil, foreign(err))
		polling.Wait()
	}()
	tick := beats.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return was, nil
		case err := <-refused:
			return was, err
		case <-tick.C:
			g.listen()
			if g.holds() {
				if _, err := l.check(); err != nil {
					return was, err
				}
			}
		}
	}
}

func (g *Group) setClient(cl *kgo.Client) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.client = cl
}

// Rejoin has the group balance again, because what this member says about itself has changed. It does not wait.
func (g *Group) Rejoin() {
	g.mu.Lock()
	cl := g.client
	g.mu.Unlock()
	if cl != nil {
		cl.ForceRebalance()
	}
}

func (g *Group) newClient(l *lease, p *pulse) (*kgo.Client, error) {
	b := &balancer{
		GroupBalancer: kgo.CooperativeStickyBalancer(), lease: l, process: g.o.Process, views: g.o.Views, standbys: g.o.Standbys,
		leaving: g.leaving.Load, strangers: g.led,
	}
	opts := append([]kgo.Opt{}, g.o.Client...)
	opts = append(opts,
		kgo.WithHooks(p),
		kgo.ConsumerGroup(g.o.Group),
		kgo.GroupProtocol(groupType),
		kgo.ConsumeTopics(g.o.Topics...),
		kgo.Balancers(b),
		kgo.SessionTimeout(g.o.SessionTimeout),
		kgo.RebalanceTimeout(g.o.RebalanceTimeout),
		kgo.HeartbeatInterval(min(heartbeatInterval, g.o.SessionTimeout/5)),
		kgo.RetryTimeout(max(g.o.SessionTimeout, coordinatorAway)),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, m map[string][]int32) {
			l.bind(cl)
			g.assigned(l, m)
			if b.stale.Load() {
				cl.ForceRebalance()
			}
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { g.revoked(m) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { g.lost(m) }),
	)
	if g.o.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(g.o.InstanceID))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("build group client: %w", err)
	}
	l.bind(cl)
	cl.PauseFetchTopics(g.o.Topics...)
	return cl, nil
}

// poll drains what the client injects; there are no records, the topics are
// paused. It tells refused of what ends the membership.
func (g *Group) poll(ctx context.Context, cl *kgo.Client, refused chan<- error) {
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(topic string, p int32, err error) {
			var group *kgo.ErrGroupSession
			ends := errors.Is(err, kerr.InvalidSessionTimeout) || errors.Is(err, kerr.FencedInstanceID) || foreign(err)
			if errors.As(err, &group) && !ends {
				g.o.Logger.Warn("group session", "group", g.o.Group, "err", err)
			}
			if ends {
				select {
				case refused <- err:
				default:
				}
			}
		})
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchInterval):
		}
	}
}

func (g *Group) assigned(l *lease, m map[string][]int32) {
	l.pulse.joined()
	g.mu.Lock()
	l.renew(len(g.tokens) > 0)
	g.joined, g.problem = true, ""
	var added []*Token
	for topic, ps := range m {
		for _, p := range ps {
			t := &Token{Topic: topic, Partition: p, lease: l}
			g.tokens[timer.TopicPartition{Topic: topic, Partition: p}] = t
			added = append(added, t)
		}
	}
	g.mu.Unlock()
	for _, t := range added {
		g.h.Assigned(t)
	}
}

func (g *Group) revoked(m map[string][]int32) {
	ts := g.remove(m)
	if len(ts) > 0 {
		g.h.Revoked(ts)
	}
	for _, t := range ts {
		t.kill(ErrRevoked)
	}
}

// lost is called at the end of a membership alone, with all that was held,
// nothing included; assigned follows when the client has joined again.
func (g *Group) lost(m map[string][]int32) {
	g.mu.Lock()
	g.joined = false
	g.mu.Unlock()
	ts := g.remove(m)
	for _, t := range ts {
		t.kill(ErrLost)
	}
	if len(ts) > 0 {
		g.h.Lost(ts)
	}
}

func (g *Group) remove(m map[string][]int32) (ts []*Token) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, ps := range m {
		for _, p := range ps {
			if t := g.tokens[timer.TopicPartition{Topic: topic, Partition: p}]; t != nil {
				ts = append(ts, t)
				delete(g.tokens, timer.TopicPartition{Topic: topic, Partition: p})
			}
		}
	}
	return ts
}

func (g *Group) removeAll() (ts []*Token) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.tokens {
		ts = append(ts, t)
	}
	clear(g.tokens)
	g.joined = false
	return ts
}

func (g *Group) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.tokens) > 0
}

// end gives everything up: in order when the process stops, else as lost. A process that others keep out leaves, even if
// it is to stay at a stop.
func (g *Group) end(cl *kgo.Client, l *lease, stopping, keptOut bool) {
	ts := g.removeAll()
	if stopping && len(ts) > 0 {
		g.h.Revoked(ts)
	}
	for _, t := range ts {
		t.kill(ErrLost)
	}
	if !stopping && len(ts) > 0 {
		g.h.Lost(ts)
	}
	l.breakUp(ErrLost)
	if keptOut || stopping && (g.o.Leave || g.resigned.Load()) {
		g.leave(cl)
	}
	cl.Close()
	g.removeAll() // a join that was under way may have ended meanwhile; its tokens are dead
}
