package node_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// sendAndWait schedules one timer and waits for its outcome.
func sendAndWait(t *testing.T, cfg *config.Config, id, to string, in, wait time.Duration) (commands.Sent, error) {
	t.Helper()
	return commands.Send(t.Context(), cfg, commands.Request{
		Topic: requests, ID: id, Options: []waterclock.Option{waterclock.After(in), waterclock.To(to),
			waterclock.Value([]byte("v"))}, To: to, Wait: wait,
	})
}

// A caller that waits for the outcome of a request learns it: pending, refused, or gone already,
// also on a log with a history of others. With events it is told what they say, and without
// them what the changelog and the dead letters allow.
func TestOutcomeOfARequest(t *testing.T) {
	t.Parallel()
	for _, events := range []bool{false, true} {
		t.Run(fmt.Sprintf("events %v", events), func(t *testing.T) {
			cfg := rig.Config(t, fake(t, "one").ListenAddrs(), requests)
			policy := cfg.PolicyOf(requests)
			policy.Events, policy.LimitHorizon = events, 48*time.Hour
			cfg.Tenants = map[string]config.Policy{requests: policy}
			in := rig.Serve(t, cfg, node.Options{})
			in.Ready(2, limit)
			schedule(t, cfg, 50, time.Hour)
			for range 2 {
				for _, id := range []string{"a", "b", "c", "d"} { // on both partitions
					outcomes(t, cfg, id, events)
				}
			}
		})
	}
}

// outcomes are those of all kinds of requests for an ID under which nothing is pending.
func outcomes(t *testing.T, cfg *config.Config, id string, events bool) {
	t.Helper()
	hour := waterclock.After(time.Hour)
	either := func(told, without waterclock.EventType) waterclock.EventType {
		if events {
			return told
		}
		return without
	}
	send := func(opts ...waterclock.Option) func() (commands.Sent, error) {
		opts = append(opts, waterclock.To(target), waterclock.Value([]byte("v")))
		return func() (commands.Sent, error) {
			return commands.Send(
				t.Context(), cfg, commands.Request{Topic: requests, ID: id, Options: opts, To: target, Wait: limit})
		}
	}
	steer := func(action commands.Action, condition string) func() (commands.Sent, error) {
		return func() (commands.Sent, error) {
			r := commands.Request{Topic: requests, ID: id, Action: action, Wait: limit}
			if condition != "" {
				r.Options = []waterclock.Option{waterclock.If(condition)}
			}
			return commands.Send(t.Context(), cfg, r)
		}
	}
	for _, c := range []struct {
		name string
		send func() (commands.Sent, error)
		want waterclock.EventType
	}{
		{"nothing to cancel", steer(commands.Cancel, ""), commands.NothingDone},
		{"nothing to pause", steer(commands.Pause, ""), commands.NothingDone},
		{"not present", send(hour, waterclock.If("present")), either(waterclock.EventConditionNotMet, "")},
		{"scheduled", send(hour, waterclock.If("absent")), waterclock.EventScheduled},
		{"not absent", send(hour, waterclock.If("absent")), either(waterclock.EventConditionNotMet, "")},
		{"not to be cancelled", steer(commands.Cancel, "timers/0/999999"),
			either(waterclock.EventConditionNotMet, commands.NothingDone)},
		{"replaced", send(hour), either(waterclock.EventReplaced, waterclock.EventScheduled)},
		{"refused", send(waterclock.After(72 * time.Hour)), waterclock.EventRejected},
		{"paused", steer(commands.Pause, ""), waterclock.EventPaused},
		{"paused already", steer(commands.Pause, ""), commands.NothingDone},
		{"resumed", steer(commands.Resume, ""), waterclock.EventResumed},
		{"triggered", steer(commands.Trigger, ""), waterclock.EventTriggered},
		{"due at once", send(waterclock.After(0)), either(waterclock.EventFired, "")},
		{"expired", send(waterclock.At(time.Now().Add(-time.Hour)), waterclock.MaxLate(0)),
			either(waterclock.EventExpired, "")},
		{"scheduled again", send(hour), waterclock.EventScheduled},
		{"cancelled", steer(commands.Cancel, ""), waterclock.EventCancelled},
	} {
		sent, err := c.send()
		if err != nil || sent.Outcome == nil || sent.Outcome.Type != c.want || sent.Outcome.Told != events {
			t.Fatalf("%s, %s: %+v, %+v, %v; want %q", id, c.name, sent, sent.Outcome, err, c.want)
		}
		if refused := c.want == waterclock.EventRejected; refused != (sent.Outcome.Refused != nil) ||
			refused && (sent.Outcome.Refused.Reason != waterclock.ReasonBeyondHorizon ||
				sent.Outcome.Refused.ID != id) {
			t.Fatalf("%s, %s: %+v", id, c.name, sent.Outcome.Refused)
		}
	}
}

// If nobody serves, that is said within the limit; the request stays written.
func TestOutcomeWhileNobodyServes(t *testing.T) {
	cfg := rig.Config(t, fake(t, "one").ListenAddrs(), requests)
	if sent, err := sendAndWait(t, cfg, "a", target, time.Hour, time.Second); err == nil || sent.Topic != "" {
		t.Errorf("nobody has ever served: %+v, %v", sent, err)
	}
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(2, limit)
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	sent, err := sendAndWait(t, cfg, "a", target, time.Hour, time.Second)
	if !errors.Is(err, commands.ErrUndecided) || sent.Topic != requests || sent.Outcome != nil {
		t.Errorf("nobody serves: %+v, %v", sent, err)
	}
}

// Whoever schedules to a topic that does not exist is told so at once, and not by a dead letter when
// the timer is due; by the API too.
func TestTargetThatDoesNotExist(t *testing.T) {
	t.Parallel()
	cfg, o := rig.Config(t, fake(t, "one").ListenAddrs(), requests), node.Options{}
	call := withAPI(t, cfg, &o)
	in := rig.Serve(t, cfg, o)
	in.Ready(2, limit)
	for to, want := range map[string]string{target: "", "nowhere": "topic nowhere does not exist now: create it " +
		"before the timer is due"} {
		sent, err := sendAndWait(t, cfg, "a", to, time.Hour, limit)
		if err != nil || !strings.HasPrefix(sent.Note, want) || (want == "") != (sent.Note == "") {
			t.Errorf("to %s: %+v, %v", to, sent, err)
		}
		var r api.Result
		if status := call("PUT /v1/topics/"+requests+"/timers/b?wait=decided timer-after:1h timer-target-topic:"+to,
			&r); status >= 300 || !strings.HasPrefix(r.Note, want) || (want == "") != (r.Note == "") {
			t.Errorf("to %s by the API: %d %+v", to, status, r)
		}
	}
}
