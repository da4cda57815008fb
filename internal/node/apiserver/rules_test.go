package apiserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
)

// A request is judged before it is written by the current rules of its topic, except rules that depend on an estimate
// of the time or on the log.
func TestRequestsAreJudgedByTheRulesOfTheirTopic(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	rules := func(target string) *intake.Rules {
		r := &intake.Rules{
			Topic: "timers", Changelog: "timers.log", Partitions: 4, PartitionerCheck: intake.DeadLetter,
			Limits: intake.DefaultLimits(), Quota: intake.Quota{Rate: 1e-9, Pending: 1},
			Allow: func(topic string) bool { return topic == target },
		}
		r.Limits.Horizon = time.Hour
		return r
	}
	at := intake.Murmur2Partition([]byte("a"), 4)
	due := func(d time.Duration) string { return fmt.Sprint(now.Add(d).UnixMilli()) }
	headers := func(pairs ...string) (all []timer.Header) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, timer.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return all
	}
	request, delayed := &requestRules{rules: rules("orders"), now: func() time.Time { return now }},
		&requestRules{rules: rules("orders"), delay: true, now: func() time.Time { return now }}
	for _, c := range []struct {
		name      string
		rules     *requestRules
		partition int32
		headers   []timer.Header
		want      string
	}{
		{"good", request, at, headers("timer-after", "1h", "timer-target-topic", "orders"), ""},
		{"above its quota", request, at, headers("timer-after", "2s", "timer-target-topic", "orders"), ""},
		{"target", request, at, headers("timer-after", "1h", "timer-target-topic", "bills"), "target-not-allowed"},
		{"partition", request, (at + 1) % 4, headers("timer-after", "1h", "timer-target-topic", "orders"),
			"wrong-partition"},
		{"at the horizon of a clock ahead", request, at, headers("timer-at", due(time.Hour+30*time.Second),
			"timer-target-topic", "orders"), ""},
		{"beyond any horizon", request, at, headers("timer-at", due(2*time.Hour), "timer-target-topic", "orders"),
			"beyond-horizon"},
		{"condition", request, at, headers("timer-after", "1h", "timer-target-topic", "orders", "timer-if",
			"timers/0"), "bad-if"},
		{"cancel", request, at, headers("timer-cancel", "true"), ""},
		{"delayed", delayed, 0, headers("timer-target-topic", "orders", "waterclock-attempt", "2"), ""},
		{"delayed, with a time", delayed, 0, headers("timer-after", "1h"), "no-effect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &route.Request{ID: []byte("a"), Value: []byte("v"), Headers: c.headers}
			got := c.rules.Reject(c.partition, r)
			if (got == nil) != (c.want == "") || got != nil && (got.Reason != c.want || got.Detail == "") {
				t.Errorf("got %+v, want %q", got, c.want)
			}
		})
	}
	request.rules.Replace(rules("bills"))
	r := &route.Request{ID: []byte("a"), Value: []byte("v"), Headers: headers("timer-after", "1h",
		"timer-target-topic", "bills")}
	if got := request.Reject(at, r); got != nil {
		t.Errorf("after new settings: %+v", got)
	}
}
