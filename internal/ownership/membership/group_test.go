package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const (
	testLimit  = 40 * time.Second
	partitions = 4
	brief      = 1500 * time.Millisecond // a session timeout
	// calm is a session timeout that no running member exceeds, however busy the machine is. It is for tests in which
	// no member may be dropped.
	calm = 8 * time.Second
)

// setup is a broker with a topic whose partitions are shared by a group.
type setup struct {
	t     *testing.T
	seeds []string
	cl    *kgo.Client
	adm   *kadm.Client
	topic string
	group string
}

// onBoth runs f against kfake and against a real Kafka, in parallel with other tests: these tests mostly wait for
// heartbeats and sessions.
func onBoth(t *testing.T, f func(t *testing.T, x *setup)) {
	t.Parallel()
	t.Run("kfake", func(t *testing.T) {
		t.Parallel()
		c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second))
		f(t, newSetup(t, c.ListenAddrs()))
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		f(t, newSetup(t, kafkatest.Shared(t).Seeds()))
	})
}

func newSetup(t *testing.T, seeds []string) *setup {
	t.Helper()
	x := &setup{t: t, seeds: seeds, topic: kafkatest.Topic(t)}
	x.group = "group-of-" + x.topic
	cl := kafkatest.Client(t, kgo.SeedBrokers(seeds...))
	x.cl, x.adm = cl, kadm.NewClient(cl)
	if _, err := x.adm.CreateTopic(context.Background(), partitions, 1, nil, x.topic); err != nil {
		t.Fatal(err)
	}
	return x
}

func (se *setup) options(name string, opts ...kgo.Opt) Options {
	return Options{
		Client: append([]kgo.Opt{
			kgo.SeedBrokers(se.seeds...), kgo.ClientID(name), kgo.MetadataMinAge(20 * time.Millisecond),
		}, opts...),
		Group: se.group, Topics: []string{se.topic},
		SessionTimeout: brief, RebalanceTimeout: brief, Leave: true,
		Process: name, Logger: slog.New(slog.NewTextHandler(se.t.Output(), nil)).With("member", name),
	}
}

// calm returns options of a member that is not dropped.
func (se *setup) calm(name string) Options {
	o := se.options(name)
	o.SessionTimeout, o.RebalanceTimeout = calm, calm
	return o
}

// resident is the membership of one process under test. mu guards the fields below it.
type resident struct {
	x    *setup
	g    *Group
	stop func() // and waits

	mu       sync.Mutex
	held     map[timer.TopicPartition]*Token
	assigned []*Token
	revoked  []*Token
	lost     []*Token
	inRevoke func(ts []*Token) // called by Revoked
}

func (se *setup) join(o Options) *resident {
	se.t.Helper()
	m := &resident{x: se, held: map[timer.TopicPartition]*Token{}}
	var err error
	if m.g, err = New(o, m); err != nil {
		se.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.g.Run(ctx); err != nil {
			se.t.Errorf("Run returns %v", err)
		}
	}()
	m.stop = func() { cancel(); <-done }
	se.t.Cleanup(m.stop)
	return m
}

func (r *resident) Assigned(t *Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tp := timer.TopicPartition{Topic: t.Topic, Partition: t.Partition}
	if old := r.held[tp]; old != nil {
		r.x.t.Errorf("%s assigned while an earlier token of it is held", t)
	}
	r.held[tp] = t
	r.assigned = append(r.assigned, t)
}

func (r *resident) Revoked(ts []*Token) {
	if r.inRevoke != nil {
		r.inRevoke(ts)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revoked = append(r.revoked, ts...)
	r.gone(ts)
}

func (r *resident) Lost(ts []*Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range ts {
		if t.Err() == nil {
			r.x.t.Errorf("%s is told lost and its token lives", t)
		}
	}
	r.lost = append(r.lost, ts...)
	r.gone(ts)
}

func (r *resident) gone(ts []*Token) {
	for _, t := range ts {
		if tp := (timer.TopicPartition{Topic: t.Topic, Partition: t.Partition}); r.held[tp] == t {
			delete(r.held, tp)
		}
	}
}

// alive returns the partitions whose tokens are alive, in order.
func (r *resident) alive() (ps []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for tp, t := range r.held {
		if t.Err() == nil {
			ps = append(ps, tp.Partition)
		}
	}
	slices.Sort(ps)
	return ps
}

func (r *resident) tokens() []*Token {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.assigned)
}

// shared waits until the members hold all partitions between them, at least n each, and none twice.
func (se *setup) shared(n int, ms ...*resident) {
	se.t.Helper()
	await.Until(se.t, testLimit, fmt.Sprintf("%d members hold at least %d partitions each", len(ms), n), func() bool {
		seen := map[int32]int{}
		for _, m := range ms {
			ps := m.alive()
			if len(ps) < n {
				return false
			}
			for _, p := range ps {
				seen[p]++
			}
		}
		for _, c := range seen {
			if c != 1 {
				return false
			}
		}
		return len(seen) == partitions
	})
}

// ids returns the member IDs that the broker has.
func (se *setup) ids() (ids []string) {
	se.t.Helper()
	g, err := se.adm.DescribeGroups(context.Background(), se.group)
	must(se.t, err)
	for _, m := range g[se.group].Members {
		ids = append(ids, m.MemberID)
	}
	return ids
}

// dead checks that tokens are dead and stay dead, whatever the group does next.
func dead(t *testing.T, want error, ts ...*Token) {
	t.Helper()
	for _, k := range ts {
		err := k.Err()
		if !errors.Is(err, want) {
			t.Errorf("token of %s: %v, want %v", k, err, want)
		}
		if _, err := k.Member(); err == nil {
			t.Errorf("dead token of %s proves membership", k)
		}
		if again := k.Err(); !errors.Is(again, want) || again.Error() != err.Error() {
			t.Errorf("token of %s died of %v and then of %v", k, err, again)
		}
	}
}

// Partitions move from one member to another in order: while the former owner drains, its token is alive and no other
// member else has one.
func TestRevokedTokensLiveWhileDraining(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		a := x.join(x.calm("a")) // no member is dropped: a lost token would say nothing about a revoked one
		var b *resident
		x.shared(partitions, a)
		var mu sync.Mutex
		drained := 0
		a.inRevoke = func(ts []*Token) {
			await.For(t, 200*time.Millisecond) // a step ends
			for _, k := range ts {
				m, err := k.Member()
				if err != nil || m.ID == "" || m.Generation < 0 {
					t.Errorf("token of %s while it drains: %+v, %v", k, m, err)
				}
				mu.Lock()
				drained++
				for _, other := range b.alive() {
					if other == k.Partition {
						t.Errorf("%s has two owners", k)
					}
				}
				mu.Unlock()
			}
		}
		mu.Lock()
		b = x.join(x.calm("b"))
		mu.Unlock()
		x.shared(1, a, b)
		mu.Lock()
		if drained == 0 {
			t.Error("nothing was revoked")
		}
		mu.Unlock()
		a.mu.Lock()
		revoked, lost := slices.Clone(a.revoked), len(a.lost)
		a.mu.Unlock()
		dead(t, ErrRevoked, revoked...)
		if lost != 0 {
			t.Errorf("%d tokens lost", lost)
		}
		// The partitions that a kept are still held by its first token.
		if n := len(a.tokens()); n != partitions {
			t.Errorf("a was assigned %d tokens, want the first %d alone", n, partitions)
		}
	})
}

// With Leave, a member that stops hands over immediately. All its tokens are dead when Run returns.
func TestStopLeaves(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		patient := func(name string) *resident {
			o := x.options(name)
			o.SessionTimeout, o.RebalanceTimeout = 20*time.Second, 20*time.Second
			return x.join(o)
		}
		a, b := patient("a"), patient("b")
		x.shared(1, a, b)
		tokens := a.tokens()
		start := time.Now()
		a.stop()
		for _, k := range tokens {
			if k.Err() == nil {
				t.Errorf("token of %s lives after the stop", k)
			}
		}
		if a.g.Joined() {
			t.Error("still joined after the stop")
		}
		x.shared(partitions, b)
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("handed over after %s, the session is 20s", took)
		}
	})
}

// A static member that stays is back within its session, and the other member notices nothing. Its old tokens are dead
// all the same.
func TestStaticMemberThatStaysKeepsItsPartitions(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		static := func(name string) Options {
			o := x.options(name)
			o.InstanceID, o.Leave = name, false
			o.SessionTimeout, o.RebalanceTimeout = 10*time.Second, 10*time.Second
			return o
		}
		a := x.join(static("a"))
		x.shared(partitions, a)
		b := x.join(static("b"))
		x.shared(1, a, b)
		before, others, assigned := b.alive(), a.alive(), len(a.tokens())
		b.stop()
		b2 := x.join(static("b"))
		await.Until(x.t, testLimit, "the static member is back", func() bool { return len(b2.alive()) > 0 })
		if got := b2.alive(); !slices.Equal(got, before) {
			t.Errorf("back with partitions %v, had %v", got, before)
		}
		if got := a.alive(); !slices.Equal(got, others) || len(a.tokens()) != assigned {
			t.Errorf("the other member has %v after it, had %v", got, others)
		}
		dead(t, ErrLost, b.tokens()...)
	})
}

// A static member that leaves is gone, even if the answer to its LeaveGroup is slow. It must not join again in the
// meantime, because it would not be removed then.
func TestStaticMemberThatLeavesIsGone(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		w := kafkatest.NewWire()
		defer w.Close()
		o := x.options("a", kgo.Dialer(w.Dial))
		o.InstanceID = "a"
		m := x.join(o)
		x.shared(partitions, m)
		h := w.HoldResponse(kmsg.LeaveGroup.Int16())
		stopped := make(chan struct{})
		go func() { m.stop(); close(stopped) }()
		ctx, cancel := context.WithTimeout(context.Background(), testLimit)
		defer cancel()
		must(t, h.Wait(ctx))
		await.For(t, 2*brief/5) // two heartbeats
		h.Release()
		<-stopped
		if ids := x.ids(); len(ids) != 0 {
			t.Errorf("the group still has members %v", ids)
		}
	})
}

// The member is removed by someone else: it loses its partitions, and comes back as another member with new tokens.
func TestKickedMemberLosesItsTokens(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		m := x.join(x.options("a"))
		x.shared(partitions, m)
		first := m.tokens()
		before, err := first[0].Member()
		must(t, err)
		kick := kmsg.NewPtrLeaveGroupRequest()
		kick.Group = x.group
		one := kmsg.NewLeaveGroupRequestMember()
		one.MemberID = before.ID
		kick.Members = append(kick.Members, one)
		if _, err := kick.RequestWith(context.Background(), x.cl); err != nil {
			t.Fatal(err)
		}
		await.Until(x.t, testLimit, "the first tokens die", func() bool {
			return !slices.ContainsFunc(first, func(k *Token) bool { return k.Err() == nil })
		})
		x.shared(partitions, m)
		dead(t, ErrLost, first...)
		after, err := m.tokens()[partitions].Member()
		if err != nil || after.ID == before.ID {
			t.Errorf("back as member %q (%v), was %q", after.ID, err, before.ID)
		}
	})
}

// The group refused a step of the member: all its tokens die, not only that partition's, and it joins again.
func TestRefusedStepLosesEverything(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		m := x.join(x.options("a"))
		x.shared(partitions, m)
		first := m.tokens()
		first[1].Refused(errors.New("UNKNOWN_MEMBER_ID"))
		dead(t, ErrLost, first...)
		await.Until(x.t, testLimit, "all are told lost", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return len(m.lost) == partitions
		})
		x.shared(partitions, m)
		dead(t, ErrLost, first...)
	})
}

// A member's JoinGroup hangs through a generation, the broker removes the member, and it comes back with a new member
// ID without any callback. An older token never proves the new membership, although the broker would accept it.
func TestJoinThatHangsBreaksTheLease(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		w := kafkatest.NewWire()
		defer w.Close()
		a := x.join(x.options("a", kgo.Dialer(w.Dial)))
		x.shared(partitions, a)
		first := a.tokens()
		before, err := first[0].Member()
		must(t, err)
		h := w.Hold(kmsg.JoinGroup.Int16())
		defer h.Release()
		watching := make(chan struct{})
		var watch sync.WaitGroup
		watch.Go(func() { // as a lane would ask, all the time
			for {
				for _, k := range first {
					if m, err := k.Member(); err == nil && m.ID != before.ID {
						t.Errorf("token of %s, taken as %s, proves membership as %s", k, before.ID, m.ID)
						return
					}
				}
				select {
				case <-watching:
					return
				case <-time.After(50 * time.Microsecond):
				}
			}
		})
		b := x.join(x.options("b"))
		ctx, cancel := context.WithTimeout(context.Background(), testLimit)
		defer cancel()
		must(t, h.Wait(ctx))
		await.Until(x.t, testLimit, "the group goes on without a", func() bool { return len(b.alive()) == partitions })
		h.Release()
		x.shared(1, a, b)
		close(watching)
		watch.Wait()
		for _, k := range first {
			if k.Err() == nil {
				t.Errorf("token of %s lives through a new membership", k)
			}
		}
	})
}

// Members come and go. At no moment do two living tokens for one partition prove the broker's current generation. (A
// token may live on unaware while its member is out of the group: the broker refuses its proofs.)
func TestMembersComeAndGo(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		a := x.join(x.calm("a"))
		for i := range 3 {
			b := x.join(x.calm(fmt.Sprint("b", i)))
			x.shared(1, a, b)
			c := x.join(x.calm(fmt.Sprint("c", i)))
			x.shared(1, a, b, c)
			b.stop()
			c.stop()
			x.shared(partitions, a)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.lost) > 0 {
			t.Errorf("%d tokens lost in orderly rebalances", len(a.lost))
		}
	})
}

func TestRebalanceTimeoutBelowSessionIsRefused(t *testing.T) {
	o := Options{SessionTimeout: 10 * time.Second, RebalanceTimeout: 9 * time.Second}
	if _, err := New(o, nil); err == nil {
		t.Error("accepted")
	}
	o.RebalanceTimeout = o.SessionTimeout
	if _, err := New(o, nil); err != nil {
		t.Error(err)
	}
}

// A membership that never reached a broker can be stopped, and leaves nothing behind.
func TestStopWithoutBroker(t *testing.T) {
	defer goleak.VerifyNone(t, kafkatest.IgnoreBrokers()...)
	x := &setup{t: t, seeds: []string{"127.0.0.1:1"}, topic: "x", group: "g"}
	g, err := New(x.options("a"), &resident{x: x})
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := g.Run(ctx); err != nil {
		t.Error(err)
	}
	if g.Joined() {
		t.Error("joined")
	}
}

// The lease alone: the effect of each view of the membership on it.
func TestLease(t *testing.T) {
	type view struct {
		member     string
		generation int32
	}
	id := "i"
	for _, tc := range []struct {
		name   string
		static bool
		do     func(l *lease, see func(view))
		alive  bool
	}{
		{"the same member", false, func(l *lease, see func(view)) { see(view{"m", 1}) }, true},
		{"dynamic, later generations", false, func(l *lease, see func(view)) { see(view{"m", 9}) }, true},
		{"another member", false, func(l *lease, see func(view)) { see(view{"n", 2}) }, false},
		{"no member", false, func(l *lease, see func(view)) { see(view{"", -1}) }, false},
		{"another member and back", false, func(l *lease, see func(view)) {
			see(view{"n", 2})
			_, _ = l.check()
			see(view{"m", 1})
		}, false},
		{"static, next generation", true, func(l *lease, see func(view)) { see(view{"m", 2}) }, true},
		{"static, a jump", true, func(l *lease, see func(view)) { see(view{"m", 3}) }, false},
		{"static, each generation joined", true, func(l *lease, see func(view)) {
			for g := int32(1); g < 5; g++ {
				l.joining(g)
				see(view{"m", g + 1})
				l.renew(true)
			}
		}, true},
		{"static, a generation missed", true, func(l *lease, see func(view)) {
			l.joining(1)
			see(view{"m", 3})
			l.renew(true)
		}, false},
		{"static, joined from a later generation", true, func(l *lease, _ func(view)) { l.joining(3) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := view{"m", 1}
			l := &lease{heartbeats: new(heartbeats),
				metadata: func() (string, int32) { return now.member, now.generation }}
			if tc.static {
				l.instance = &id
			}
			l.renew(false)
			k := &Token{Topic: "t", lease: l}
			must(t, k.Err())
			tc.do(l, func(v view) { now = v })
			m, err := k.Member()
			if tc.alive != (err == nil) {
				t.Fatalf("token: %v, want alive %v", err, tc.alive)
			}
			if tc.alive && m != (emitter.Member{ID: now.member, Generation: now.generation, InstanceID: l.instance}) {
				t.Errorf("proves %+v, the client would send %+v", m, now)
			}
			if !tc.alive {
				now = view{"m", 1}
				dead(t, ErrLost, k)
			}
		})
	}
}

// A member knows that another round follows before its lease is renewed. Asking for that round at this time does not
// break the lease: nothing is held under it yet.
func TestAskingForAnotherRoundBreaksNoLease(t *testing.T) {
	nobody := kgo.SeedBrokers("127.0.0.1:1")
	g := &Group{o: Options{Client: []kgo.Opt{nobody}, Group: "g", Topics: []string{"t"}, SessionTimeout: calm,
		RebalanceTimeout: calm, Now: time.Now}}
	g.coordinator = &coordinator{kafkatest.Client(t, nobody), "g"}
	s, err := g.newSession()
	must(t, err)
	defer s.client.Close()
	s.lease.mu.Lock()
	s.lease.metadata = func() (string, int32) { return "m", 1 } // joined, and assigned is not called yet
	s.lease.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the answer is not needed
	_ = s.again.ask(ctx)
	s.lease.renew(false)
	if _, err := s.lease.check(); err != nil {
		t.Error(err)
	}
}

// If a member is told to stop while the group takes partitions from it, the steps on them can finish: its tokens live
// until the revocation is over.
func TestStopWaitsForARevocation(t *testing.T) {
	t.Parallel()
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second))
	x := newSetup(t, c.ListenAddrs())
	a := x.join(x.calm("a"))
	x.shared(partitions, a)
	first := true
	stopped := make(chan struct{})
	a.inRevoke = func(ts []*Token) {
		if !first {
			return // the other partitions, at the end
		}
		first = false
		go func() { defer close(stopped); a.stop() }()
		await.For(t, 5*watchInterval) // a step ends
		for _, k := range ts {
			if err := k.Err(); err != nil {
				t.Errorf("token of %s while it drains: %v", k, err)
			}
		}
	}
	b := x.join(x.calm("b"))
	x.shared(partitions, b)
	<-stopped
}

// must ends the test with an error, if there is one.
func must(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
