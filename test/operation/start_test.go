package operation

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// readiness is /readyz as its readers know it.
type readiness struct {
	Phase  string
	Member bool
	Topics map[string]map[string]struct {
		State   string
		Pending int64
	}
}

func (s *scene) readyz() (int, readiness) {
	s.Helper()
	status, body := s.Readyz()
	var answer struct {
		Ready  bool
		Detail readiness
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		s.Fatalf("/readyz answers %d %q: %v", status, body, err)
	}
	if answer.Ready != (status == http.StatusOK) {
		s.Errorf("status %d with %s", status, body)
	}
	return status, answer.Detail
}

// phase waits until /readyz says what the instance does.
func (s *scene) phase(want string) {
	s.Helper()
	s.until("it is "+want, func() bool { _, r := s.readyz(); return r.Phase == want })
}

// While no broker can be reached an instance tries each second, complains now and then, and /readyz says what it waits
// for; and then each partition with what is pending in it. Stopped and started on its directory it has its timers again
// without reading the changelog from the start.
func TestReadinessAndDirectoryAcrossARestart(t *testing.T) {
	const timers = 200
	s := fake(t, 2)
	s.cfg.Brokers = []string{rig.FreeAddr(t)} // nobody listens there
	var tries atomic.Int32
	s.o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		tries.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	s.begin()
	s.until("three tries", func() bool { return tries.Load() >= 3 })
	if lines := s.log.Lines("no broker can be reached"); len(lines) != 1 {
		t.Errorf("it is said %d times", len(lines))
	}
	if status, r := s.readyz(); status == http.StatusOK || r.Phase == "" || r.Member {
		t.Errorf("without a broker: %d %+v, want not ready, not a member, and a phase", status, r)
	}
	s.Stop()

	s.cfg.Brokers = s.Seeds
	s.serve()
	s.schedule("id", timers, time.Hour)
	pending := func() (n int64) {
		status, r := s.readyz()
		if status != http.StatusOK || !r.Member || r.Phase != "" || len(r.Topics[s.Requests]) != 2 {
			t.Fatalf("running: %d %+v", status, r)
		}
		for _, p := range r.Topics[s.Requests] {
			n += p.Pending
		}
		return n
	}
	s.until("all timers are pending", func() bool { return pending() == timers })
	s.Stop()

	s.serve()
	if n := pending(); n != timers {
		t.Errorf("%d timers pending after the restart, want %d", n, timers)
	}
	// The claims of two partitions with their markers, and nothing of the timers.
	if n := s.Metric("waterclock_replayed_offsets_total"); n > 20 {
		t.Errorf("%v changelog offsets replayed after an orderly stop", n)
	}
}

// A second instance on a data directory is refused, and the first goes on. So is one of another cluster.
func TestDirectoryOfOthersIsRefused(t *testing.T) {
	s := fake(t, 2).serves()
	if err := s.refused(); !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second instance: %v", err)
	}
	s.Ready(2, limit)
	s.Stop()
	s.cfg.Brokers = fake(t, 2, kfake.ClusterID("another")).Seeds
	if err := s.refused(); !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("on the directory of another cluster: %v", err)
	}
}

// The HTTP server fails while the instance still looks for its brokers: that is no clean stop.
func TestServerFailsWhileStarting(t *testing.T) {
	s := fake(t, 2)
	s.cfg.Brokers = []string{rig.FreeAddr(t)} // nobody listens there
	s.cfg.HTTPWebConfig = filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(s.cfg.HTTPWebConfig, []byte("basic_auth_users: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.o.Started = func(string) { os.Remove(s.cfg.HTTPWebConfig) }
	s.refused() // and not without an error
}

// The log begins with version, settings and directory, and ends with a line too. Of a secret it names the file.
func TestLogBeginsAndEnds(t *testing.T) {
	s := fake(t, 2)
	has := func(line string, words ...string) {
		t.Helper()
		for _, want := range words {
			if !strings.Contains(line, want) {
				t.Errorf("lacks %s: %s", want, line)
			}
		}
	}
	s.serve()
	has(s.log.Lines("")[0], "msg=starting", "version=", "data_dir="+s.cfg.DataDir, "settings.requests="+s.Requests,
		"settings.session-timeout=10s", "settings.group="+s.cfg.Group)
	has(s.log.Lines("")[1], `msg="memory limit"`, `source="the setting memory"`, "size.total=256MiB", "size.wheel=64MiB")
	if s.Metric("waterclock_build_info") != 1 {
		t.Errorf("no waterclock_build_info:\n%s", s.Metrics())
	}
	s.Stop()
	lines := s.log.Lines("")
	has(lines[len(lines)-1], "msg=stopped")

	s.cfg.Brokers = []string{"127.0.0.1:1"}
	s.cfg.SASLMechanism, s.cfg.SASLUsername = "PLAIN", "wc"
	s.cfg.SASLPasswordFile = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(s.cfg.SASLPasswordFile, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.begin()
	has(s.log.Lines("")[0], "**** (in "+s.cfg.SASLPasswordFile+")")
	if found := s.log.Lines("hunter2"); len(found) > 0 {
		t.Errorf("the log has a secret: %s", found)
	}
}

// What one alerts on when it grows is there, as 0, before anything happened.
func TestCountersBeginAtZero(t *testing.T) {
	s := fake(t, 2).serves()
	shown := s.Metrics()
	want := []string{
		`waterclock_requests_lost_total{topic="requests"} 0`,
		`waterclock_misplaced_requests_total{topic="requests"} 0`,
		`waterclock_retention_alerts_total{topic="requests"} 0`,
		`waterclock_accepted_total{topic="requests"} 0`,
		`waterclock_outcomes_total{outcome="undeliverable",topic="requests"} 0`,
		`waterclock_topic_checks_total{result="stop",topic="requests"} 0`,
		`waterclock_transactions_total{outcome="fenced"} 0`,
	}
	for _, reason := range waterclock.Reasons() {
		want = append(want, `waterclock_dead_letters_total{reason="`+string(reason)+`",topic="requests"} 0`)
	}
	for _, line := range want {
		if !strings.Contains(shown, line) {
			t.Errorf("no %s", line)
		}
	}
}

// Requests that are refused, and keys on another partition than their own, show in the log: some of each kind in a
// minute, with what is wrong with them.
func TestRefusalsAreLogged(t *testing.T) {
	s := fake(t, 2).serves()
	const n = 20
	for range n {
		s.Send(s.Request("misspelt", "", "timer-aftr", "1s"))
	}
	s.Send(s.Request("nowhere", "", "timer-after", "1ms", "timer-target-topic", "does-not-exist"))
	zero, one := s.Cancel("wandering"), s.Cancel("wandering") // one of them is the wrong partition
	one.Partition = 1
	rig.Send(t, s.Manual(), zero, one)
	s.counts(n+1, "waterclock_dead_letters_total")
	lines := s.log.Lines("reason=unknown-header")
	if len(lines) == 0 || len(lines) >= n {
		t.Fatalf("%d lines for %d refusals", len(lines), n)
	}
	for _, want := range []string{"level=WARN", "topic=requests", "partition=", "timer=misspelt", "timer-aftr",
		"source=requests/"} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("no %q in %s", want, lines[0])
		}
	}
	if got := s.log.Lines("reason=target-unknown"); len(got) != 1 || !regexp.MustCompile(
		`level=WARN msg="timer undeliverable.* timer=nowhere source=requests/`).MatchString(got[0]) {
		t.Errorf("of what could not be delivered: %q", got)
	}
	s.counts(1, "waterclock_misplaced_requests_total")
	if got := s.log.Lines("on the wrong partition"); len(got) != 1 || !strings.Contains(got[0], "timer=wandering") {
		t.Errorf("of the wrong partition: %q", got)
	}
}

// leave tells the instance to hand over. It sends the status of the answer, or 0 if there is none.
func (s *scene) leave(within string) <-chan int {
	status := make(chan int, 1)
	go func() {
		code, err := rig.Leave(context.Background(), s.Addr(), s.cfg.DataDir, within)
		if err != nil {
			s.Logf("leave within %s: %v", within, err)
		}
		status <- code
	}()
	return status
}

// An instance that stays in its group at a stop is told to leave within an hour. The other member of the group serves
// another topic and so cannot take over, and the instance waits. A second call of POST /leave may shorten the wait of
// the first; and if it is stopped before others have taken over, it leaves all the same.
func TestLeavingIsCutShort(t *testing.T) {
	t.Parallel()
	for _, cut := range []string{"by a second call", "by a stop"} {
		t.Run(cut, func(t *testing.T) {
			t.Parallel()
			const others = "others"
			s := fake(t, 2, kfake.SeedTopics(2, others))
			s.cfg.InstanceID, s.cfg.OnStop, s.cfg.SessionTimeout = "leaver", config.Stay, time.Minute
			s.begin()
			other := newScene(s.Setup, 2)
			other.cfg.Requests = []string{others}
			other.serve()
			s.Ready(2, limit)
			answer := s.leave("1h")
			s.phase("handing over")
			if cut == "by a stop" {
				s.Stop()
				<-answer
			} else {
				if code := <-s.leave("0s"); code != http.StatusOK {
					t.Fatalf("the second call got %d", code)
				}
				if code := <-answer; code != http.StatusOK {
					t.Errorf("the first call got %d", code)
				}
				if err := s.Wait(limit); err != nil {
					t.Error(err)
				}
			}
			groups, err := s.Admin.DescribeGroups(t.Context(), s.cfg.Group)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(groups[s.cfg.Group].Members); n != 1 {
				t.Errorf("%d members after one of two has left: its partitions wait until its session ends", n)
			}
		})
	}
}
