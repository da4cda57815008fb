package api_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
)

// shortDeadline makes every deadline for reading a body expire soon.
type shortDeadline struct{ http.ResponseWriter }

const soon = 50 * time.Millisecond

func (s shortDeadline) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s shortDeadline) SetReadDeadline(time.Time) error {
	return http.NewResponseController(s.ResponseWriter).SetReadDeadline(time.Now().Add(soon))
}

// If a call without a body takes longer than a body may take, neither it nor the next calls on
// its connection are cut off. Once all of them were answered 503, "context canceled".
func TestACallWithoutABodyIsLong(t *testing.T) {
	f := newFake("timers", partitions)
	router := route.New(route.Options{Local: &local{f, "p0"}, Directory: f, Process: "p0", MaxBody: 1 << 20})
	canceled := make(chan error, 10)
	a := api.New(api.Options{
		Asker: router, Topics: map[string]api.Topic{"timers": {Partitions: partitions, MaxBytes: 1 << 20}},
		PartitionOf: intake.Murmur2Partition, Logger: slog.New(slog.DiscardHandler), Logs: emptyLogs{},
		Rights: api.Rights{May: func(ctx context.Context, _ access.Role, _, _ string) error {
			select {
			case <-ctx.Done():
				canceled <- ctx.Err()
			case <-time.After(4 * soon):
			}
			return nil
		}},
	})
	defer a.Close()
	s := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.ServeHTTP(shortDeadline{w}, r) }))
	defer s.Close()
	in := &instance{Caller: called(t, s.URL)}
	for _, body := range []string{"", "v"} {
		in.Call("PUT", path("a"), body, "timer-after", "1h", "timer-target-topic", "out")
		in.Get(path("a")).Is(200, "")
	}
	select {
	case err := <-canceled:
		t.Errorf("a call was cut off: %v", err)
	default:
	}
}
