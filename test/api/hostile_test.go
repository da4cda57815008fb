package api

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// zeros is a body without an end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// A body of 100 MB is refused before it is there, whether its length is said or not; who sends
// what would forge a line of the log does not; and the instance answers as before.
func TestHostileCalls(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 1, nil)
	cfg := rig.Config(t, c.Seeds(), requests)
	cfg.API = "127.0.0.1:0"
	urls := make(chan string, 1)
	in, log := rig.ServeLogged(t, cfg, node.Options{StartedAPI: func(u string) { urls <- u }})
	in.Ready(1, limit)
	a := &asked{client(t), <-urls}
	const large = 100 << 20
	for _, length := range []int64{large, -1} {
		sent := &counted{Reader: io.LimitReader(zeros{}, large)}
		req, err := http.NewRequestWithContext(t.Context(), "PUT", a.url+timersOf(requests)+"/large", sent)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = length
		if resp, err := a.c.Do(req); err == nil { // else the connection has ended while it was sent
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("length %d: %s", length, resp.Status)
			}
		}
		if sent.n > large/2 {
			t.Errorf("length %d: %d bytes were taken", length, sent.n)
		}
	}
	const forged = "x\ntime=2026-01-01T00:00:00Z level=ERROR msg=forged\r\n\x1b[31m"
	id := timersOf(requests) + "/" + strings.NewReplacer("\n", "%0A", "\r", "%0D", "\x1b", "%1B", " ", "%20").Replace(
		forged)
	a.call(t, "PUT", id, forged, "timer-after", "1h", "timer-target-topic", "out").is(t, 201, "scheduled")
	a.call(t, "PUT", id, forged, "timer-after", "1h\tlevel=ERROR", "timer-target-topic", "out").is(
		t, 400, "bad-duration")
	a.call(t, "GET", id, "").is(t, 200, "")
	a.call(t, "DELETE", id, "").is(t, 200, "cancelled")
	audits := log.Lines("msg=audit")
	if len(audits) < 3 {
		t.Errorf("audit %q", audits)
	}
	for _, line := range log.Lines("forged") {
		if strings.Count(line, "\n") != 1 || strings.ContainsAny(line, "\r\x1b") ||
			strings.HasPrefix(line, "time=2026-01-01T00:00:00Z") {
			t.Errorf("a line of the log is forged: %q", line)
		}
	}
}

// counted counts what is read of it.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}

// Beside an instance that tells no address, as older versions do, one with an API says clearly
// whom it cannot ask, writes what need not be decided, and answers for all when the other ends.
func TestBesideAnOlderInstance(t *testing.T) {
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	older := rig.Serve(t, rig.Config(t, c.Seeds(), requests), node.Options{})
	older.Ready(partitions, limit)
	newer, a := serve(t, rig.Config(t, c.Seeds(), requests), keyFile(t))
	share(t, &older.Web, &newer.Web)
	from := timersOf(requests)
	elsewhere := 0
	for _, id := range strings.Split("abcdefghijklmnopqrst", "") {
		got := a.call(t, "PUT", from+"/"+id, "v", "timer-after", "1h", "timer-target-topic", "out")
		if got.status == 201 {
			continue
		}
		elsewhere++
		if got.is(t, 421, "elsewhere"); !strings.Contains(got.text, "has no API") {
			t.Errorf("it does not say why: %s", got.text)
		}
		a.call(t, "GET", from+"/"+id, "").is(t, 421, "elsewhere")
		a.call(t, "PUT", from+"/"+id+"?wait=written", "v", "timer-after", "1h", "timer-target-topic", "out").is(
			t, 202, "written")
	}
	if elsewhere == 0 || elsewhere == 20 {
		t.Fatalf("%d of 20 timers are the other's", elsewhere)
	}
	for _, path := range []string{from, from + "/count"} { // they answer for the rest
		got := a.call(t, "GET", path, "").is(t, 200, "")
		if missing, ok := got.body["missing"].([]any); !ok || len(missing) == 0 ||
			!strings.Contains(got.text, "which has no API: start it with --api") {
			t.Errorf("%s does not name what is missing: %s", path, got.text)
		}
	}
	if n := a.call(t, "GET", from+"/count", "").body["count"]; n != float64(20-elsewhere) {
		t.Errorf("%v timers are counted, want %d", n, 20-elsewhere)
	}
	a.call(t, "POST", from+"/cancel?all=true&dry-run=true", "").is(t, 421, "elsewhere")
	if cluster := a.call(t, "GET", "/v1/cluster", "").is(t, 200, ""); !strings.Contains(
		cluster.text, "it has no API: start it with --api (and a version that has it)") {
		t.Error(cluster.text)
	}
	if err := older.Stop(); err != nil {
		t.Fatal(err)
	}
	newer.Ready(partitions, limit)
	await.Until(t, limit, "what was only written is decided too", func() bool {
		return a.call(t, "GET", from+"/count", "").body["count"] == 20.0
	})
}
