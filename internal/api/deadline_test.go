package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
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
	canceled := make(chan error, 10)
	slow := start(t, newFake("timers", partitions), "p0", false, func(o *api.Options) {
		o.Rights.May = func(ctx context.Context, _ access.Role, _, _ string) error {
			select {
			case <-ctx.Done():
				canceled <- ctx.Err()
			case <-time.After(4 * soon):
			}
			return nil
		}
	})
	s := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { slow.api.ServeHTTP(shortDeadline{w}, r) }))
	defer s.Close()
	in := called(t, s.URL)
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
