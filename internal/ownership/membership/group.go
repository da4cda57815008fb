package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/span"
)

const (
	// coordinatorAway is for how long requests to the group's coordinator are repeated. If its broker dies, the group
	// has no coordinator until Kafka's 9 s (broker.session.timeout.ms) and an election are over. By default kgo gives
	// up heartbeats after the session timeout, and all partitions with them, in all instances together, although the
	// new coordinator knows the members.
	coordinatorAway = 30 * time.Second
	// heartbeatInterval is how long a member may not know that the group rebalances. A partition that moves has no
	// owner from its revocation until all members have heard of the next round. Heartbeats are the cheapest requests
	// there are.
	heartbeatInterval = 100 * time.Millisecond
	// watchInterval is how often the lease is checked for a silent change of membership.
	watchInterval = 100 * time.Millisecond
	// rejoinPause is the pause between two group clients.
	rejoinPause = 200 * time.Millisecond
	// handOverTimeout limits how long a stop waits for the group to choose new owners. All members must hear of the
	// round (heartbeatInterval), join and get their assignments, and the partitions that this one gives up must drain.
	handOverTimeout = 2 * time.Second
	// leaveTimeout limits the time to leave the group.
	leaveTimeout = 3 * time.Second
)

// Options configure a group membership.
type Options struct {
	Client           []kgo.Opt
	Group            string
	Process          string // the process's ID, 1 to 64 bytes, never used by another process
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
	// Settings returns a digest of the settings by which the process judges requests, some 60 bytes; nil: there is
	// none. It is called before each join. After a change call Rejoin.
	Settings func() []byte
	// Standbys configures copies of partitions that the process does not own; the zero value: there are none.
	Standbys Standbys
}

// Handler acquires and releases partitions. Its methods are called by the group client, one at a time.
type Handler interface {
	// Assigned must not block.
	Assigned(t *Token)
	// Revoked drains the partitions. While it runs the tokens are still alive, and the group waits.
	Revoked(ts []*Token)
	// Lost reports tokens that are already dead.
	Lost(ts []*Token)
}

// Group is the membership of one process. Each session has its own group client.
type Group struct {
	Status
	o           Options
	h           Handler
	tokens      tokens
	coordinator *coordinator // set when Run begins

	foreignSaid  beats.Reminder // when it was last logged that others use the group; used only by Run
	unresponsive bool           // the problem was logged; used only by Run

	client   atomic.Pointer[kgo.Client] // of the session; nil between two
	resigned atomic.Bool                // leave at the end of Run, whatever Options say
	leaving  atomic.Bool                // see HandOver
	room     room                       // of the user data
}

// New returns a membership, which Run starts.
func New(o Options, h Handler) (*Group, error) {
	if o.RebalanceTimeout < o.SessionTimeout {
		return nil, fmt.Errorf("rebalance timeout %s is shorter than the session timeout %s: a member could miss a "+
			"generation and keep its ID; raise it",
			span.String(o.RebalanceTimeout), span.String(o.SessionTimeout))
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	g := &Group{o: o, h: h}
	g.Status.o = &g.o
	return g, nil
}

// Resign makes Run leave the group at its end, even if Options tell it to stay. It is for an instance that must make
// room for others, and is called before the context of Run ends.
func (g *Group) Resign() { g.resigned.Store(true) }

// Run is a member until ctx ends; then it drains everything and leaves. It returns early, with
// kerr.InvalidSessionTimeout, if the brokers do not allow the session timeout.
func (g *Group) Run(ctx context.Context) error {
	client, err := kgo.NewClient(g.o.Client...)
	if err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	defer client.Close()
	g.coordinator = &coordinator{client, g.o.Group}
	for ctx.Err() == nil {
		was, err := g.join(ctx)
		if errors.Is(err, kerr.InvalidSessionTimeout) {
			return err
		}
		if foreign(err) {
			g.awaitForeign(ctx, err)
			continue
		}
		g.foreignSaid = beats.Reminder{}
		if err != nil {
			g.o.Logger.Warn("group membership ended, joining again", "group", g.o.Group, "err", err)
		}
		g.awaitName(ctx, was)
		beats.Sleep(ctx, rejoinPause)
	}
	return nil
}

// join runs one session, unless members of KIP-848 have the group. It returns the last identity of the member.
func (g *Group) join(ctx context.Context) (was emitter.Member, err error) {
	if err := g.coordinator.look(ctx); err != nil {
		return was, err
	}
	s, err := g.newSession()
	if err != nil {
		return was, err
	}
	return s.run(ctx)
}

// Rejoin makes the group balance again, because the user data of this member have changed. It does not wait.
func (g *Group) Rejoin() {
	if cl := g.client.Load(); cl != nil {
		cl.ForceRebalance()
	}
}

// listen logs when Unresponsive begins and when it ends, once each. It is called only by Run.
func (g *Group) listen() {
	now := g.Unresponsive()
	switch {
	case now != "" && !g.unresponsive:
		g.o.Logger.Error("not ready: " + now)
	case now == "" && g.unresponsive:
		g.o.Logger.Info("the brokers answer again", "group", g.o.Group)
	}
	g.unresponsive = now != ""
}

const (
	// nameInterval is how often a fenced instance asks whether its name is free.
	nameInterval = time.Second
	// nameReminder is how often it logs that it waits.
	nameReminder = time.Minute
)

// awaitName waits while another process is a member under our instance ID.
//
// If this process joined immediately it would fence the other one, which would notice when a step is refused, join
// immediately and fence us, and so on forever. So the newest process keeps the name, and the fenced one gets it back
// when that one has gone. (kgo would do the same if a heartbeat tells it that it is fenced: it asks with its old member
// ID, four times a second, and reports that each time; poll ends that.) A join of our own that the broker accepted
// while the client closed looks the same. It costs one session timeout.
func (g *Group) awaitName(ctx context.Context, was emitter.Member) {
	if g.o.InstanceID == "" || was.ID == "" {
		return
	}
	var waits beats.Reminder
	for ctx.Err() == nil && errors.Is(g.coordinator.heartbeat(ctx, was), kerr.FencedInstanceID) {
		if waits.Due(nameReminder) {
			problem := fmt.Sprintf("another process is a member of group %s under instance ID %s: stop one of them, "+
				"or give each an --instance-id of its own",
				g.o.Group, g.o.InstanceID)
			g.problem.Store(&problem)
			g.o.Logger.Error("instance ID in use by another process of the group, waiting until it is gone",
				"group", g.o.Group, "instance_id", g.o.InstanceID)
		}
		beats.Sleep(ctx, nameInterval)
	}
}
