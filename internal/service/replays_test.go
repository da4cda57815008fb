package service_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
)

// replaysHeld is how long replays stand still while it is looked how many there
// are.
const replaysHeld = time.Second

// At the limit all partitions replay at once. With more of them the others wait
// until one is through; all get there.
func TestReplaysAtATime(t *testing.T) {
	for _, n := range []int{service.MaxReplays, service.MaxReplays + 1, 2*service.MaxReplays + 1} {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(int32(n), requests))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		wire := kafkatest.NewWire()
		t.Cleanup(wire.Close)
		held := wire.Hold(kmsg.Fetch.Int16()) // replays begin and do not go on
		t.Cleanup(held.Release)
		in := rig.Serve(t, rig.Config(t, c.ListenAddrs(), requests), service.Options{Dial: wire.Dial})
		state := func(name string) int { return int(in.Metric("waterclock_partitions", "state", name)) }
		most := 0
		look := func() { most = max(most, state("replaying")) }
		rig.Until(t, limit, "all replay that may", func() bool {
			look()
			return state("replaying") == service.MaxReplays && state("taking") == n-service.MaxReplays
		})
		for start := time.Now(); time.Since(start) < replaysHeld; time.Sleep(10 * time.Millisecond) {
			look()
		}
		if got := state("taking"); got != n-service.MaxReplays {
			t.Errorf("%d partitions: %d wait, want %d", n, got, n-service.MaxReplays)
		}
		held.Release()
		rig.Until(t, limit, "all are live", func() bool { look(); return state("live") == n })
		if most != service.MaxReplays {
			t.Errorf("%d partitions: up to %d replay at once, want %d", n, most, service.MaxReplays)
		}
		in.Ready(n, limit)
		if err := in.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}
