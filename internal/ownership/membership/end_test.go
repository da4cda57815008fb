package membership

import (
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lateJoin is a handler in whose Lost the group client completes a join that was under way: its SyncGroup is answered
// between the break of the lease and Close.
type lateJoin struct {
	s *session
}

func (*lateJoin) Assigned(*Token)  {}
func (*lateJoin) Revoked([]*Token) {}
func (l *lateJoin) Lost([]*Token)  { l.s.assigned(nil) }

func TestJoinThatEndsWhileTheClientIsGivenUp(t *testing.T) {
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	must(t, err)
	h := new(lateJoin)
	g := &Group{o: Options{Logger: slog.New(slog.DiscardHandler)}, h: h}
	h.s = &session{g: g, lease: &lease{heartbeats: new(heartbeats), metadata: func() (string, int32) { return "a", 1 }},
		client: cl, revoking: make(chan struct{}, 1)}
	h.s.assigned(map[string][]int32{"topic": {0}})
	h.s.end(false, false)
	if g.Joined() {
		t.Error("a member still, although its client is closed")
	}
}
