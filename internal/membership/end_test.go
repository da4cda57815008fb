package membership

import (
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/timer"
)

// lateJoin is a handler in whose Lost the group client finishes a join that was
// under way: its SyncGroup is answered between the break of the lease and Close.
type lateJoin struct {
	g *Group
	l *lease
}

func (*lateJoin) Assigned(*Token)  {}
func (*lateJoin) Revoked([]*Token) {}
func (h *lateJoin) Lost([]*Token)  { h.g.assigned(h.l, nil) }

func TestJoinThatEndsWhileTheClientIsGivenUp(t *testing.T) {
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	l := &lease{pulse: new(pulse), metadata: func() (string, int32) { return "a", 1 }}
	h := &lateJoin{l: l}
	h.g = &Group{o: Options{Logger: slog.New(slog.DiscardHandler)}, h: h, tokens: make(map[timer.TopicPartition]*Token)}
	h.g.assigned(l, map[string][]int32{"topic": {0}})
	h.g.end(cl, l, false, false)
	if h.g.Joined() {
		t.Error("a member still, although its client is closed")
	}
}
