package service_test

import (
	"errors"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
)

// sendAndWait schedules one timer and waits for its fate.
func sendAndWait(t *testing.T, cfg *config.Config, id, to string, in, wait time.Duration) (service.Sent, error) {
	t.Helper()
	return service.Schedule(t.Context(), cfg, service.ScheduleRequest{Topic: requests, ID: id, In: in, To: to, Value: []byte("v"), Partition: -1, Wait: wait})
}

// Who waits for the fate of a request learns it: pending, refused, or gone already;
// also on a log with a history of others'.
func TestFateOfARequest(t *testing.T) {
	cfg := rig.Config(t, fake(t, "one").ListenAddrs(), requests)
	in := rig.Serve(t, cfg, service.Options{})
	in.Ready(2, limit)
	schedule(t, cfg, 50, time.Hour)
	for range 2 {
		for _, id := range []string{"a", "b", "c", "d"} { // on both partitions
			sent, err := sendAndWait(t, cfg, id, target, time.Hour, limit)
			if err != nil || sent.Fate == nil || sent.Fate.Pending == nil || sent.Fate.Pending.Partition != sent.Partition {
				t.Fatalf("%s: %+v, %v", id, sent, err)
			}
			sent, err = sendAndWait(t, cfg, id, "__consumer_offsets", time.Hour, limit)
			if err != nil || sent.Fate == nil || sent.Fate.Refused == nil || sent.Fate.Refused.Reason != waterclock.ReasonTargetNotAllowed || sent.Fate.Refused.ID != id {
				t.Fatalf("%s to an internal topic: %+v, %v", id, sent, err)
			}
			sent, err = sendAndWait(t, cfg, "past", target, 0, limit)
			if err != nil || sent.Fate == nil || sent.Fate.Refused != nil {
				t.Fatalf("due at once: %+v, %v", sent, err)
			}
		}
	}
}

// Where nobody serves, that is said within the limit; the request stays written.
func TestFateWhereNobodyServes(t *testing.T) {
	cfg := rig.Config(t, fake(t, "one").ListenAddrs(), requests)
	if sent, err := sendAndWait(t, cfg, "a", target, time.Hour, time.Second); err == nil || sent.Topic != "" {
		t.Errorf("nobody has ever served: %+v, %v", sent, err)
	}
	in := rig.Serve(t, cfg, service.Options{})
	in.Ready(2, limit)
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	sent, err := sendAndWait(t, cfg, "a", target, time.Hour, time.Second)
	if !errors.Is(err, service.ErrUndecided) || sent.Topic != requests || sent.Fate != nil {
		t.Errorf("nobody serves: %+v, %v", sent, err)
	}
}
