package membership

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/transaction"
)

// coordinator is a model of the group coordinator of a group with one partition.
type coordinator struct {
	generation int32
	members    map[string]string // member ID to instance ID, "" for a dynamic one
	static     map[string]string // instance ID to member ID
	owner      string            // member ID that has the partition
	moment     int               // counts what happens
	owned      map[string][]int  // moments at which a member was the owner
	n          int               // member IDs so far
}

// happened notes who is the owner at the next moment.
func (c *coordinator) happened() {
	c.moment++
	c.owned[c.owner] = append(c.owned[c.owner], c.moment)
}

// heartbeat is what a broker does with one.
func (c *coordinator) heartbeat(m transaction.Member) error {
	_, known := c.members[m.ID]
	switch {
	case m.InstanceID != nil && c.static[*m.InstanceID] == "":
		return kerr.UnknownMemberID
	case m.InstanceID != nil && c.static[*m.InstanceID] != m.ID:
		return kerr.FencedInstanceID
	case !known:
		return kerr.UnknownMemberID
	case m.Generation != c.generation:
		return kerr.IllegalGeneration
	}
	return nil
}

// player is a process of the model.
type player struct {
	lease      *lease
	token      *Token // nil: it was never given the partition
	id         string
	generation atomic.Int32 // as it has heard; its questions read it when their pause is over
}

// beat is a heartbeat under way: arrive has the coordinator take it in, and answer the
// answer come back. Each is closed by the test.
type beat struct {
	m               transaction.Member
	arrive, answer  chan struct{}
	arrived, closed bool
	err             error
}

// model is the group with its processes, and all that is under way.
type model struct {
	c       *coordinator
	players []*player

	mu      sync.Mutex // guards what follows from processes that go on at once
	beats   []*beat
	asking  int // calls of Certain under way
	settled []func() string
}

func (m *model) join(instance string) *player {
	m.c.n++
	p := &player{id: fmt.Sprintf("m%d", m.c.n)}
	p.lease = &lease{pulse: new(pulse), metadata: func() (string, int32) { return p.id, p.generation.Load() }}
	p.lease.proof = newProof(func(ctx context.Context) error { return p.lease.ask(ctx, m.beat) })
	m.c.members[p.id] = instance
	if instance != "" {
		p.lease.instance = &instance
		m.c.static[instance] = p.id
	}
	p.generation.Store(m.c.generation)
	p.lease.renew(false)
	m.players = append(m.players, p)
	return p
}

// beat is how a process's heartbeat goes.
func (m *model) beat(ctx context.Context, who transaction.Member) error {
	b := &beat{m: who, arrive: make(chan struct{}), answer: make(chan struct{})}
	m.mu.Lock()
	m.beats = append(m.beats, b)
	m.mu.Unlock()
	<-b.arrive
	b.err = m.c.heartbeat(who)
	<-b.answer
	return b.err
}

// assign gives the partition to a member, who hears of it at once.
func (m *model) assign(p *player) {
	m.c.owner = p.id
	p.generation.Store(m.c.generation)
	p.lease.renew(p.token != nil)
	p.token = &Token{Topic: "t", lease: p.lease}
}

func (m *model) drop(p *player) {
	if instance := m.c.members[p.id]; instance != "" && m.c.static[instance] == p.id {
		delete(m.c.static, instance)
	}
	delete(m.c.members, p.id)
}

// ask has every process that believes to be the owner answer a reader.
func (m *model) ask() {
	for _, p := range m.players {
		if p.token == nil {
			continue
		}
		begun := m.c.moment
		m.mu.Lock()
		m.asking++
		m.mu.Unlock()
		go func() {
			err := p.token.Certain(context.Background())
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.asking--; err != nil {
				return
			}
			ended := m.c.moment
			m.settled = append(m.settled, func() string {
				for _, at := range m.c.owned[p.id] {
					if at >= begun && at <= ended {
						return ""
					}
				}
				return fmt.Sprintf("%s was certain between %d and %d, and owner at %v alone", p.id, begun, ended, m.c.owned[p.id])
			})
		}()
	}
}

// TestAtMostOneIsCertain: whatever is replaced, removed, handed over and however long
// requests and answers lie somewhere (a process that stands still), who is certain was
// the owner at a moment between the question and the answer. So no two readers are told
// what was not true in an order that all could have seen.
func TestAtMostOneIsCertain(t *testing.T) {
	what := rapid.SampledFrom([]string{"ask", "ask", "arrive", "arrive", "answer", "answer", "replace", "remove", "hand over", "rebalance", "hear"})
	rapid.Check(t, func(rt *rapid.T) {
		static := rapid.SliceOfN(rapid.Bool(), 3, 3).Draw(rt, "static")
		script := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) move {
			return move{what.Draw(rt, "what"), rapid.IntRange(0, 5).Draw(rt, "which")}
		}), 1, 60).Draw(rt, "script")
		wrong := ""
		synctest.Test(t, func(*testing.T) { wrong = play(static, script) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// move is one thing that happens, to one of those that it can happen to.
type move struct {
	what  string
	which int
}

// play has a script happen. What it does not say happens to nobody: a process that hears
// nothing stands still.
func play(static []bool, script []move) string {
	m := &model{c: &coordinator{generation: 1, members: map[string]string{}, static: map[string]string{}, owned: map[string][]int{}}}
	for i := range static {
		instance := ""
		if static[i] {
			instance = fmt.Sprint("wc-", i)
		}
		m.join(instance)
	}
	m.assign(m.players[0])
	m.c.happened()
	for _, x := range script {
		m.happen(x)
		synctest.Wait()
		m.c.happened()
	}
	for {
		m.mu.Lock()
		asking, beats := m.asking, slices.Clone(m.beats)
		m.mu.Unlock()
		if asking == 0 {
			break
		}
		for _, b := range beats {
			if !b.arrived {
				close(b.arrive)
				synctest.Wait()
			}
			if !b.closed {
				close(b.answer)
			}
			b.arrived, b.closed = true, true
		}
		time.Sleep(proofEvery + generationPause)
		synctest.Wait()
		m.happen(move{"hear", 0})
		m.happen(move{"hear", 1})
	}
	for _, check := range m.settled {
		if wrong := check(); wrong != "" {
			return wrong
		}
	}
	return ""
}

func (m *model) happen(x move) {
	owner := pick(m.players, 0, func(p *player) bool { return p.id == m.c.owner })
	m.mu.Lock()
	beats := slices.Clone(m.beats)
	m.mu.Unlock()
	switch x.what {
	case "ask":
		m.ask()
	case "arrive":
		if b := pick(beats, x.which, func(b *beat) bool { return !b.arrived }); b != nil {
			b.arrived = true
			close(b.arrive)
		}
	case "answer":
		if b := pick(beats, x.which, func(b *beat) bool { return b.arrived && !b.closed }); b != nil {
			b.closed = true
			close(b.answer)
		}
	case "replace": // in the same generation, and nobody is told
		if was := pick(m.players, x.which, func(p *player) bool { return m.c.members[p.id] != "" }); was != nil {
			instance := m.c.members[was.id]
			delete(m.c.members, was.id)
			if now := m.join(instance); was == owner {
				m.assign(now)
			}
		}
	case "remove": // by an operator, or by its session; others have the partition at once
		if gone := pick(m.players, x.which, m.in); gone != nil && len(m.c.members) > 1 {
			m.drop(gone)
			m.c.generation++
			if gone == owner {
				m.assign(pick(m.players, x.which, m.in))
			}
		}
	case "hand over":
		heir := pick(m.players, x.which, func(p *player) bool { return m.in(p) && p != owner })
		if heir == nil || owner.generation.Load() != m.c.generation {
			return
		}
		owner.token.kill(ErrRevoked)
		m.c.generation++
		owner.lease.joining(owner.generation.Load())
		owner.generation.Store(m.c.generation)
		m.assign(heir)
	case "rebalance": // all members have joined, and hear the number later
		m.c.generation++
	case "hear":
		p := m.players[x.which%len(m.players)]
		for ; m.in(p) && p.generation.Load() < m.c.generation; p.generation.Add(1) {
			p.lease.joining(p.generation.Load())
		}
		if !m.in(p) && p.token != nil {
			p.token.kill(ErrLost)
		}
	}
}

func (m *model) in(p *player) bool {
	_, in := m.c.members[p.id]
	return in
}

// pick returns one of those that are ok, nil if none is.
func pick[T any](all []*T, which int, ok func(*T) bool) *T {
	all = slices.DeleteFunc(slices.Clone(all), func(x *T) bool { return !ok(x) })
	if len(all) == 0 {
		return nil
	}
	return all[which%len(all)]
}

// A static member that was replaced, and any member that an operator removed, is not
// certain any more once another is, although it hears nothing of it and its session is
// far from over.
func TestReplacedOrRemovedIsNotCertain(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		for _, how := range []string{"replaced", "static, removed", "removed"} {
			t.Run(how, func(t *testing.T) {
				x := newSetup(t, x.seeds)
				deaf := kafkatest.NewWire()
				defer deaf.Close()
				old := x.options("old")
				old.Client = append(old.Client, kgo.Dialer(deaf.Dial))
				old.SessionTimeout, old.RebalanceTimeout = 20*time.Second, 20*time.Second
				fresh := x.options("new")
				if how != "removed" {
					old.InstanceID = "wc-0"
				}
				if how == "replaced" {
					fresh.InstanceID = "wc-0"
				}
				a := x.join(old)
				x.shared(partitions, a)
				tokens := a.tokens()
				if err := tokens[0].Certain(t.Context()); err != nil {
					t.Fatalf("the only member: %v", err)
				}
				// The group client hears nothing of the group from here on.
				held := deaf.HoldRequest(kmsg.Heartbeat.Int16(), 1)
				if how != "replaced" {
					x.remove()
				}
				b := x.join(fresh)
				x.shared(partitions, b)
				for _, k := range b.tokens() {
					if err := k.Certain(t.Context()); err != nil {
						t.Errorf("the new owner of %s: %v", k, err)
					}
				}
				for _, k := range tokens {
					if err := k.Certain(t.Context()); err == nil {
						t.Errorf("two are certain of %s", k)
					}
				}
				held.Release()
			})
		}
	})
}

// remove takes every member out of the group, as an operator does.
func (x *setup) remove() {
	x.t.Helper()
	g, err := x.adm.DescribeGroups(x.t.Context(), x.group)
	if err != nil {
		x.t.Fatal(err)
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = x.group
	for _, m := range g[x.group].Members {
		gone := kmsg.NewLeaveGroupRequestMember()
		gone.MemberID, gone.InstanceID = m.MemberID, m.InstanceID
		req.Members = append(req.Members, gone)
	}
	resp, err := req.RequestWith(x.t.Context(), x.cl)
	if err != nil || resp.ErrorCode != 0 || len(resp.Members) != 1 || resp.Members[0].ErrorCode != 0 {
		x.t.Fatalf("remove the members: %v, %+v", err, resp)
	}
}
