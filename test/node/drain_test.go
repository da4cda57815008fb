package node_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// leave tells an instance to hand over. It sends the status of the answer, or 0 if there is none.
func leave(t *testing.T, in *rig.Instance, dir, within string) <-chan int {
	status := make(chan int, 1)
	go func() {
		code, err := rig.Leave(context.Background(), in.Addr(), dir, within)
		if err != nil {
			t.Logf("leave within %s: %v", within, err)
		}
		status <- code
	}()
	return status
}

// leaver starts an instance that stays in its group at a stop, and tells it to leave within an hour. The other member
// of the group serves another topic and so cannot take over. So the instance waits.
func leaver(t *testing.T) (in *rig.Instance, dir string, answer <-chan int, members func() int) {
	t.Helper()
	const others = "others"
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, requests, others, target))
	cfg, other := rig.Config(t, c.ListenAddrs(), requests), rig.Config(t, c.ListenAddrs(), others)
	cfg.InstanceID, cfg.OnStop, cfg.SessionTimeout = "leaver", config.Stay, time.Minute
	other.Group = cfg.Group
	adm := kadm.NewClient(cl)
	members = func() int {
		groups, err := adm.DescribeGroups(t.Context(), cfg.Group)
		if err != nil {
			t.Fatal(err)
		}
		return len(groups[cfg.Group].Members)
	}
	in = rig.Serve(t, cfg, node.Options{})
	rig.Serve(t, other, node.Options{}).Ready(2, limit)
	in.Ready(2, limit)
	answer = leave(t, in, cfg.DataDir, "1h")
	await.Until(t, limit, "it hands over", func() bool { _, r := readyz(t, in); return r.Phase == "handing over" })
	return in, cfg.DataDir, answer, members
}

// A second call of POST /leave may shorten the wait of the first.
func TestSecondLeaveShortensTheFirst(t *testing.T) {
	t.Parallel()
	in, dir, answer, members := leaver(t)
	if code := <-leave(t, in, dir, "0s"); code != http.StatusOK {
		t.Fatalf("the second call got %d", code)
	}
	if code := <-answer; code != http.StatusOK {
		t.Errorf("the first call got %d", code)
	}
	if err := in.Wait(limit); err != nil {
		t.Error(err)
	}
	if n := members(); n != 1 {
		t.Errorf("%d members after one of two has left", n)
	}
}

// An instance that was told to leave does so even if it is stopped before others have taken over.
func TestInstanceStoppedDuringHandoverLeaves(t *testing.T) {
	t.Parallel()
	in, _, answer, members := leaver(t)
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	<-answer
	if n := members(); n != 1 {
		t.Errorf("%d members after one of two has left: its partitions wait until its session ends", n)
	}
}
