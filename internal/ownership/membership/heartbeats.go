package membership

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kit/clocks"
)

// heartbeats records when the group's coordinator last answered a group client. kgo says nothing while it goes
// on asking, for coordinatorAway, and all that time the member may already have been dropped. It is a
// hook of the client.
//
// An answer to a heartbeat, a join or a sync ends the silence, whatever it says. A client that is closed
// takes its heartbeats with it. mu guards the fields.
type heartbeats struct {
	now  func() time.Time // the owner's clock, for heard
	mu   sync.Mutex
	last time.Time
	// sent is when the last answered question was sent. heeded is when the last question was sent on whose
	// answer the client has acted: see heard.
	sent, heeded time.Time
	// asked means that a join is under way, whose answer waits for the other members. Its answer, or the end
	// of its connection, ends that.
	asked bool
}

var (
	_ kgo.HookBrokerWrite = (*heartbeats)(nil)
	_ kgo.HookBrokerE2E   = (*heartbeats)(nil)
)

func (h *heartbeats) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if !ofMember(key) || err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heeded = h.sent // there is one question at a time
	if waitsForOthers(key) {
		h.asked = true
	}
}

func (h *heartbeats) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if !ofMember(key) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if waitsForOthers(key) {
		h.asked = false
	}
	if e2e.WriteErr == nil && e2e.ReadErr == nil {
		h.last = time.Now()
		h.sent = h.now().Add(-e2e.DurationE2E())
	}
}

// joined notes that the client has acted on the last answer, so it is a member.
func (h *heartbeats) joined() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heeded = h.sent
}

// heard returns how long ago the group is known to have had this member. It counts from when a
// question was sent, because the answer may have waited here while the process was paused.
// An answer does not count before the client has acted on it, because it may say that the member was
// dropped. The longer time of two clocks counts: the monotonic one stands still while a machine is
// suspended.
func (h *heartbeats) heard() time.Duration {
	h.mu.Lock()
	heeded := h.heeded
	h.mu.Unlock()
	return clocks.Passed(heeded, h.now())
}

// ofMember reports whether an answer to a request with this key says whether the group knows the member.
func ofMember(key int16) bool { return key == kmsg.Heartbeat.Int16() || waitsForOthers(key) }

func waitsForOthers(key int16) bool {
	return key == kmsg.JoinGroup.Int16() || key == kmsg.SyncGroup.Int16()
}

// silence returns how long there has been no answer. asked reports that the pending answer may be waiting
// for other members.
func (h *heartbeats) silence() (d time.Duration, asked bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.last), h.asked
}
