package membership

import (
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/span"
)

// pulse notes when the group's coordinator last answered a group client. kgo
// says nothing while it goes on asking, for coordinatorAway, and all that while
// the member may have been dropped already. It is a hook of the client.
//
// What ends that is an answer to a heartbeat, a join or a sync, whatever it
// says; a client that is closed takes its pulse with it. mu guards the fields.
type pulse struct {
	now  func() time.Time // the owner's clock, for heard
	mu   sync.Mutex
	last time.Time
	// sent is when the last question that was answered was sent; heeded is when the last question
	// whose answer the client has acted on was sent: see heard.
	sent, heeded time.Time
	// asked: a join is under way, whose answer waits for the other members. Its
	// answer, or the end of its connection, ends that.
	asked bool
}

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (p *pulse) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if !ofMember(key) || err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heeded = p.sent // there is one question at a time
	if waitsForOthers(key) {
		p.asked = true
	}
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (p *pulse) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if !ofMember(key) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if waitsForOthers(key) {
		p.asked = false
	}
	if e2e.WriteErr == nil && e2e.ReadErr == nil {
		p.last = time.Now()
		p.sent = p.now().Add(-e2e.DurationE2E())
	}
}

// joined notes that the client has acted on the last answer: it is a member.
func (p *pulse) joined() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heeded = p.sent
}

// heard returns how long ago the group is known to have had this member. It counts from when a
// question was sent, because the answer may have waited here while the process was paused.
// An answer does not count before the client has acted on it, because it may say that the member was
// dropped. The longer time of two clocks counts: the monotonic one stands still while a machine is
// suspended.
func (p *pulse) heard() time.Duration {
	p.mu.Lock()
	heeded := p.heeded
	p.mu.Unlock()
	now := p.now()
	return max(now.Sub(heeded), now.Round(0).Sub(heeded.Round(0)))
}

// ofMember says whether an answer to such a question tells that the group knows the member.
func ofMember(key int16) bool { return key == kmsg.Heartbeat.Int16() || waitsForOthers(key) }

func waitsForOthers(key int16) bool {
	return key == kmsg.JoinGroup.Int16() || key == kmsg.SyncGroup.Int16()
}

// silence returns how long there has been no answer. asked reports that the pending answer may be waiting
// for other members.
func (p *pulse) silence() (d time.Duration, asked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.last), p.asked
}

// Unresponsive is a sentence once the brokers have been unresponsive for longer than the
// group's patience with this member, so that its partitions may be elsewhere, or
// nobody's; else "".
func (g *Group) Unresponsive() string {
	g.mu.Lock()
	p := g.pulse
	g.mu.Unlock()
	if p == nil {
		return "" // no client: it says so otherwise
	}
	d, asked := p.silence()
	limit := g.o.SessionTimeout
	if asked {
		limit += g.o.RebalanceTimeout
	}
	if d <= limit {
		return ""
	}
	return fmt.Sprintf("no broker has answered for group %s for %s, longer than the session timeout (%s): the brokers are down or cut off from here, or this process stood still; it goes on by itself when one answers",
		g.o.Group, span.String(d.Round(time.Second)), span.String(g.o.SessionTimeout))
}

// listen logs the beginning and the end of what Unresponsive says, once each. It is Run's own.
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
