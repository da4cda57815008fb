package ownership

import (
	"log/slog"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/topics"
)

// The alert works for any retention, even if three quarters of a hundred years overflow nanoseconds in between.
// Requests held by an open transaction are watched too.
func TestRetentionAlert(t *testing.T) {
	for _, x := range []struct {
		retention, lag time.Duration
		alert          int64
	}{
		{-1, time.Hour, 0},
		{4 * time.Hour, 2 * time.Hour, 0},
		{4 * time.Hour, 3*time.Hour + time.Second, 1},
		{100 * 365 * 24 * time.Hour, time.Hour, 0},
	} {
		for _, how := range []string{"read", "held"} {
			count := new(counted)
			l := New(Options{
				Topics: &topics.Set{Request: topics.Topic{Name: "r", Retention: x.retention}}, Now: time.Now,
				Logger: slog.New(slog.DiscardHandler),
			}, count)
			for range 2 { // the second one is not logged
				if oldest := time.Now().Add(-x.lag); how == "read" {
					l.Input.WatchRetention(oldest)
				} else {
					l.Input.SetEnd(LogEnd{By: &Held{Oldest: oldest}})
				}
			}
			if n := count.near.Load(); n != x.alert {
				t.Errorf("%s: a lag of %s of %s: %d alerts, want %d", how, x.lag, x.retention, n, x.alert)
			}
		}
	}
}
