package membership

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// holder collects the tokens that it is given.
type holder struct{ given chan *Token }

func (h *holder) Assigned(t *Token) { h.given <- t }
func (h *holder) Revoked([]*Token)  {}
func (h *holder) Lost([]*Token)     {}

// member runs a group with one partition in the test's cluster. stop ends it.
func member(t *testing.T, c *kfake.Cluster, instance string) (h *holder, g *Group, stop func()) {
	t.Helper()
	h = &holder{given: make(chan *Token, 16)}
	g, err := New(Options{
		Client: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.MetadataMinAge(100 * time.Millisecond)},
		Group:  "g", InstanceID: instance, Topics: []string{"requests"},
		SessionTimeout: 6 * time.Second, RebalanceTimeout: 10 * time.Second, Leave: true,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, h)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Run(ctx) })
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return h, g, stop
}

func (h *holder) next(t *testing.T, who string) *Token {
	t.Helper()
	select {
	case token := <-h.given:
		return token
	case <-time.After(20 * time.Second):
		t.Fatalf("%s was given no partition", who)
		return nil
	}
}

// TestFencedByItsNameWaits: if a process's step is refused because another process
// joined under its instance ID, it must not fence that one in turn. It comes back when
// the other has left.
func TestFencedByItsNameWaits(t *testing.T) {
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "requests"), kfake.GroupMinSessionTimeout(
		time.Second))
	first, group, _ := member(t, c, "wc-0")
	before := first.next(t, "the first")
	second, _, stopSecond := member(t, c, "wc-0")
	after := second.next(t, "the second")

	before.Refused(errors.New("FENCED_INSTANCE_ID"))
	// Heartbeats come every 1.2 s. Within two of them the second process would notice that
	// it is fenced.
	select {
	case <-first.given:
		t.Error("the first acquired the partition again while the second had it")
	case <-second.given:
		t.Error("the second had to join again")
	case <-time.After(3 * time.Second):
	}
	if err := after.Err(); err != nil {
		t.Errorf("the second lost its partition: %v", err)
	}
	if group.Joined() {
		t.Error("the first says that it is a member")
	}

	stopSecond()
	if err := first.next(t, "the first, when its name was free,").Err(); err != nil {
		t.Errorf("its new token is dead: %v", err)
	}
}
