package membership

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// modelCoordinator is a model of the group coordinator of a group with one partition.
type modelCoordinator struct {
	generation int32
	members    map[string]string // member ID to instance ID, "" for a dynamic one
	static     map[string]string // instance ID to member ID
	owner      string            // member ID that has the partition
	moment     int               // counts events
	owned      map[string][]int  // the moments at which each member was the owner
	n          int               // member IDs so far
}

// happened notes the owner at the next moment.
func (mc *modelCoordinator) happened() {
	mc.moment++
	mc.owned[mc.owner] = append(mc.owned[mc.owner], mc.moment)
}

// heartbeat simulates a broker that gets a heartbeat.
func (mc *modelCoordinator) heartbeat(m emitter.Member) error {
	_, known := mc.members[m.ID]
	switch {
	case m.InstanceID != nil && mc.static[*m.InstanceID] == "":
		return kerr.UnknownMemberID
	case m.InstanceID != nil && mc.static[*m.InstanceID] != m.ID:
		return kerr.FencedInstanceID
	case !known:
		return kerr.UnknownMemberID
	case m.Generation != mc.generation:
		return kerr.IllegalGeneration
	}
	return nil
}

// player is a process of the model.
type player struct {
	lease      *lease
	token      *Token     // nil: it was never given the partition
	mu         sync.Mutex // guards its client's identity, which questions read when their pause is over
	id         string
	generation int32 // as it has heard
	missed     bool  // a generation began without it
}

// metadata returns the identity that its client would send.
func (p *player) metadata() (string, int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id, p.generation
}

// is makes the player another member, or moves it to another generation. Its client is not told.
func (p *player) is(id string, generation int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.id, p.generation = id, generation
}

// offsetCommit is the offset commit of a step under way, which the group has not processed yet.
type offsetCommit struct {
	of *player
	m  emitter.Member
}

// beat is a heartbeat under way. Closing arrive makes the coordinator process it, and closing answer brings back
// the answer. The test closes each.
type beat struct {
	m               emitter.Member
	arrive, answer  chan struct{}
	arrived, closed bool
	err             error
}

// model is the group with its processes, and everything that is under way.
type model struct {
	c       *modelCoordinator
	players []*player
	steps   []offsetCommit
	wrong   string
	seen    map[string]int

	mu      sync.Mutex // guards the results of processes that run concurrently
	beats   []*beat
	asking  int // calls of Certain under way
	settled []func() string
}

func (m *model) join(instance string) *player {
	p := new(player)
	p.lease = &lease{heartbeats: new(heartbeats), metadata: p.metadata}
	p.lease.proof = newProof(func(ctx context.Context) error { return p.lease.ask(ctx, m.beat) })
	if instance != "" {
		p.lease.instance = &instance
	}
	m.enter(p, instance)
	p.lease.renew(false)
	m.players = append(m.players, p)
	return p
}

// enter makes a process a new member of the current generation.
func (m *model) enter(p *player, instance string) {
	m.c.n++
	id := fmt.Sprintf("m%d", m.c.n)
	m.c.members[id] = instance
	if instance != "" {
		m.c.static[instance] = id
	}
	p.is(id, m.c.generation)
}

// beat sends a heartbeat of a process.
func (m *model) beat(ctx context.Context, who emitter.Member) error {
	b := &beat{m: who, arrive: make(chan struct{}), answer: make(chan struct{})}
	m.mu.Lock()
	m.beats = append(m.beats, b)
	m.mu.Unlock()
	<-b.arrive
	b.err = m.c.heartbeat(who)
	<-b.answer
	return b.err
}

// assign gives the partition to a member, which hears of it immediately.
func (m *model) assign(p *player) {
	m.c.owner = p.id
	p.is(p.id, m.c.generation)
	p.lease.renew(p.token != nil && p.token.dead.Load() == nil)
	p.token = &Token{Topic: "t", lease: p.lease}
}

func (m *model) drop(p *player) {
	if instance := m.c.members[p.id]; instance != "" && m.c.static[instance] == p.id {
		delete(m.c.static, instance)
	}
	delete(m.c.members, p.id)
}

// ask makes every process that believes to be the owner answer a reader.
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
			p.lease.mu.Lock()
			ended, id := m.c.moment, p.lease.member
			p.lease.mu.Unlock()
			m.settled = append(m.settled, func() string {
				for _, at := range m.c.owned[id] {
					if at >= begun && at <= ended {
						return ""
					}
				}
				return fmt.Sprintf("%s was certain between %d and %d, and owner at %v alone", id, begun, ended,
					m.c.owned[id])
			})
		}()
	}
}

// TestAtMostOneIsCertain: members are replaced, removed, handed over to and left out of a generation, and
// requests and answers are delayed for any time, as by a process that stands still. Still a process that is
// certain was the owner at some moment between the question and the answer. So no two readers are told things
// that contradict every order of events. And a step that the group accepts is the owner's.
func TestAtMostOneIsCertain(t *testing.T) {
	runs.Checks(t, 1000)
	seen := map[string]int{}
	what := rapid.SampledFrom([]string{"ask", "ask", "arrive", "arrive", "answer", "answer", "replace", "remove",
		"hand over", "rebalance", "leave out", "hear", "hear", "send", "send", "send", "commit", "commit"})
	rapid.Check(t, func(rt *rapid.T) {
		static := rapid.SliceOfN(rapid.Bool(), 3, 3).Draw(rt, "static")
		script := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) move {
			return move{what.Draw(rt, "what"), rapid.IntRange(0, 5).Draw(rt, "which")}
		}), 1, 60).Draw(rt, "script")
		wrong := ""
		synctest.Test(t, func(*testing.T) { wrong = play(static, script, seen) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
	for _, what := range []string{"certain", "accepted", "refused", "not sent", "left out", "come back under its ID",
		"come back under another ID"} {
		if seen[what] == 0 && !testing.Short() {
			t.Errorf("nothing was %s: %v", what, seen)
		}
	}
}

// move is one event, which happens to one of the processes that it can happen to.
type move struct {
	what  string
	which int
}

// play runs a script. Nothing else happens: a process that hears nothing stands still.
func play(static []bool, script []move, seen map[string]int) string {
	m := &model{seen: seen, c: &modelCoordinator{generation: 1, members: map[string]string{},
		static: map[string]string{}, owned: map[string][]int{}}}
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
		if m.wrong != "" {
			return m.wrong
		}
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
	seen["certain"] += len(m.settled)
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
	case "replace": // in the same generation, without telling anybody
		if was := pick(m.players, x.which, func(p *player) bool { return m.c.members[p.id] != "" }); was != nil {
			instance := m.c.members[was.id]
			delete(m.c.members, was.id)
			if now := m.join(instance); was == owner {
				m.assign(now)
			}
		}
	case "remove": // by an operator, or by its session; others get the partition immediately
		if gone := pick(m.players, x.which, m.in); gone != nil && len(m.c.members) > 1 {
			m.drop(gone)
			m.c.generation++
			if gone == owner {
				m.assign(pick(m.players, x.which, m.in))
			}
		}
	case "hand over":
		heir := pick(m.players, x.which, func(p *player) bool { return m.in(p) && p != owner })
		if heir == nil || owner == nil || owner.generation != m.c.generation {
			return
		}
		owner.token.kill(ErrRevoked)
		owner.lease.joining(owner.generation)
		m.c.generation++
		owner.is(owner.id, m.c.generation)
		m.joins(heir)
		m.assign(heir)
	case "rebalance": // all members have joined, and hear the number later
		m.c.generation++
	case "leave out": // the group has waited long enough for one member, and others get its partition
		out := pick(m.players, x.which, m.in)
		heir := pick(m.players, x.which, func(p *player) bool { return m.in(p) && p != out })
		if heir == nil || out.generation != m.c.generation {
			return
		}
		m.seen["left out"]++
		m.c.generation++
		if out.missed = true; out.lease.instance == nil {
			m.drop(out)
		}
		if out == owner {
			m.joins(heir)
			m.assign(heir)
		}
	case "hear":
		m.hear(m.players[x.which%len(m.players)])
	case "send": // a step has been written, and its offset commit is sent
		for _, p := range m.players {
			if p.token == nil {
				continue
			}
			if as, err := p.token.Member(); err == nil {
				m.steps = append(m.steps, offsetCommit{p, as})
			} else {
				m.seen["not sent"]++
			}
		}
	case "commit": // the group fences it like a heartbeat
		if len(m.steps) == 0 {
			return
		}
		i := x.which % len(m.steps)
		s := m.steps[i]
		m.steps = slices.Delete(m.steps, i, i+1)
		switch err := m.c.heartbeat(s.m); {
		case err != nil:
			m.seen["refused"]++
		case m.c.owner != s.m.ID:
			m.wrong = fmt.Sprintf("a step of %s is accepted in generation %d, and %s is the owner", s.m.ID,
				s.m.Generation, m.c.owner)
		default:
			m.seen["accepted"]++
		}
	}
}

// joins makes a member take part in the generations up to the current one.
func (m *model) joins(p *player) {
	for p.generation < m.c.generation {
		p.lease.joining(p.generation)
		if p.missed { // it comes back
			p.missed = false
			m.seen["come back under its ID"]++
			p.is(p.id, m.c.generation)
			return
		}
		p.is(p.id, p.generation+1)
	}
}

// hear tells a process the news of the group.
func (m *model) hear(p *player) {
	switch {
	case m.in(p) && p.missed:
		m.c.generation++ // for which its join waits
		m.joins(p)
	case m.in(p):
		m.joins(p)
	case p.missed: // kgo adopts the new ID silently (see package comment); the assignment comes later
		p.missed = false
		m.seen["come back under another ID"]++
		m.c.generation++
		p.lease.joining(p.generation)
		m.enter(p, "")
	case p.token != nil:
		p.token.kill(ErrLost)
	}
}

func (m *model) in(p *player) bool {
	_, in := m.c.members[p.id]
	return in
}

// pick returns one of the elements that are ok, nil if none is.
func pick[T any](all []*T, which int, ok func(*T) bool) *T {
	all = slices.DeleteFunc(slices.Clone(all), func(x *T) bool { return !ok(x) })
	if len(all) == 0 {
		return nil
	}
	return all[which%len(all)]
}

// A static member that was replaced, or any member that an operator removed, is no longer certain once another
// one is, although it hears nothing of it and its session is far from over.
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
				// The group client hears nothing from the group from here on.
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

// remove removes every member from the group, as an operator does.
func (se *setup) remove() {
	se.t.Helper()
	g, err := se.adm.DescribeGroups(se.t.Context(), se.group)
	must(se.t, err)
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = se.group
	for _, m := range g[se.group].Members {
		gone := kmsg.NewLeaveGroupRequestMember()
		gone.MemberID, gone.InstanceID = m.MemberID, m.InstanceID
		req.Members = append(req.Members, gone)
	}
	resp, err := req.RequestWith(se.t.Context(), se.cl)
	if err != nil || resp.ErrorCode != 0 || len(resp.Members) != 1 || resp.Members[0].ErrorCode != 0 {
		se.t.Fatalf("remove the members: %v, %+v", err, resp)
	}
}
