// Package operation tests what operators see of instances: how they start, end, and say what is wrong, and what becomes
// of them when settings, topics, clocks, brokers and directories change.
package operation

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// limit is what a test waits for at most that would else hang: dozens of instances and their brokers start at once on
// a machine that others use.
const limit = 2 * time.Minute

// scene is a request topic with an instance.
type scene struct {
	*rig.Setup
	cfg *config.Config
	o   node.Options
	*rig.Instance
	log *rig.Log
	// live is how many partitions are to be live before a test goes on.
	live  int
	ahead atomic.Int64 // by how much the instance's clock is ahead, in ns
}

func newScene(s *rig.Setup, partitions int32) *scene {
	sc := &scene{Setup: s, cfg: s.Config(), live: int(partitions)}
	sc.o.Now = func() time.Time { return time.Now().Add(time.Duration(sc.ahead.Load())) }
	return sc
}

// fake returns a scene on a fake broker, in which no instance runs yet.
func fake(t *testing.T, partitions int32, opts ...kfake.Opt) *scene {
	t.Helper()
	return newScene(rig.OnFake(t, partitions, opts...), partitions)
}

// onKafka returns a scene on the shared broker, in which no instance runs yet.
func onKafka(t *testing.T, partitions, target int32, settings ...string) *scene {
	t.Helper()
	return newScene(rig.NewSetup(t, kafkatest.Shared(t), partitions, target, settings...), partitions)
}

// begin starts the scene's instance with its settings of now, and does not wait.
func (s *scene) begin() {
	s.Helper()
	s.Instance, s.log = rig.ServeLogged(s, s.cfg, s.o)
}

// serve starts the instance and waits until it is ready.
func (s *scene) serve() {
	s.Helper()
	s.begin()
	s.Ready(s.live, limit)
}

// serves returns the scene with its instance at work.
func (s *scene) serves() *scene {
	s.Helper()
	s.serve()
	return s
}

// schedule sends n timers that fall due after in, and waits until all are pending.
func (s *scene) schedule(prefix string, n int, in time.Duration) {
	s.Helper()
	s.Send(s.Timers(prefix, n, time.Now().Add(in), 0)...)
}

// until waits for what gives no signal.
func (s *scene) until(what string, ok func() bool) time.Duration {
	s.Helper()
	return await.Until(s, limit, what, ok)
}

// counts waits until a metric has a value.
func (s *scene) counts(want float64, name string, labels ...string) {
	s.Helper()
	s.until(name, func() bool { return s.Metric(name, labels...) == want })
}

// says waits until the log has a line that contains text.
func (s *scene) says(text string) {
	s.Helper()
	s.until("the log says "+text, func() bool { return len(s.log.Lines(text)) > 0 })
}

// notReady waits until the instance is not ready, and says why with all of these words.
func (s *scene) notReady(words ...string) {
	s.Helper()
	s.until("/readyz says "+strings.Join(words, ", "), func() bool {
		status, body := s.Readyz()
		for _, w := range words {
			if status == http.StatusOK || !strings.Contains(body, w) {
				return false
			}
		}
		return true
	})
}

// refused returns why an instance with the scene's settings ends by itself.
func (s *scene) refused() error {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	err := node.RunWith(ctx, s.cfg, slog.New(slog.DiscardHandler), s.o)
	if ctx.Err() != nil || err == nil {
		s.Fatalf("it ended with %v, %v", err, ctx.Err())
	}
	return err
}

// withAPI has the instance serve its API, and returns how to call it: the status of the answer, and the answer in out.
// A call is a path to GET, or method, path and headers, as NAME:VALUE.
func (s *scene) withAPI() (get func(call string, out any) int) {
	s.cfg.API = "127.0.0.1:0"
	at := make(chan string, 1)
	s.o.StartedAPI = func(addr string) { at <- addr }
	base := ""
	return func(call string, out any) int {
		s.Helper()
		if base == "" {
			base = <-at
		}
		parts := strings.Fields(call)
		if len(parts) == 1 {
			parts = []string{http.MethodGet, parts[0]}
		}
		req, err := http.NewRequestWithContext(s.Context(), parts[0], base+parts[1], http.NoBody)
		if err != nil {
			s.Fatal(err)
		}
		for _, h := range parts[2:] {
			name, value, _ := strings.Cut(h, ":")
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			s.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil {
			err = json.Unmarshal(body, out)
		}
		if err != nil {
			s.Fatalf("%s: %v: %s", call, err, body)
		}
		return resp.StatusCode
	}
}
