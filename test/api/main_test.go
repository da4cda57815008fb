// Package api has the HTTP API of whole instances asked, over net/http and nothing of our
// own, and what it says held against what a plain Kafka client sees.
package api

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const (
	// limit bounds what is waited for, on a busy machine.
	limit      = 60 * time.Second
	partitions = 4
	poll       = 20 * time.Millisecond
)

// client is without our code. Each test has its own, so that connections end with it.
func client(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: limit}
}

// keyFile is a file with a key that instances share.
func keyFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(strings.Repeat("k", 40)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// asked is an instance as its callers know it.
type asked struct {
	c   *http.Client
	url string
}

// serve starts an instance with an API; key may be empty.
func serve(t testing.TB, cfg *config.Config, key string) (*rig.Instance, *asked) {
	t.Helper()
	cfg.API, cfg.APIKeyFile = "127.0.0.1:0", key
	urls := make(chan string, 1)
	in := rig.Serve(t, cfg, node.Options{StartedAPI: func(u string) { urls <- u }})
	in.Healthz()
	return in, &asked{client(t), <-urls}
}

// answer is what an instance has answered; status 0: nothing.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
	err    error
}

// call makes a call; headers are given as name, value pairs.
func (a *asked) call(t testing.TB, method, path, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, a.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := a.c.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{err: err}
	}
	got := answer{status: resp.StatusCode, header: resp.Header, text: string(text)}
	_ = json.Unmarshal(text, &got.body) // some are no objects
	return got
}

// is fails the test unless the answer has a status and the outcome or reason.
func (a answer) is(t testing.TB, status int, word string) answer {
	t.Helper()
	got, _ := a.body["outcome"].(string)
	if a.status >= 400 {
		got, _ = a.body["reason"].(string)
	}
	if a.status != status || word != "" && got != word {
		t.Fatalf("got %d %.800s %v, want %d %q", a.status, a.text, a.err, status, word)
	}
	return a
}

// timersOf is the path of a topic's timers.
func timersOf(topic string) string { return "/v1/topics/" + topic + "/timers" }

// two starts two instances that own two partitions each.
func two(t testing.TB, c *kafkatest.Cluster, requests, key string) (one, other *rig.Instance, a, b *asked) {
	t.Helper()
	one, a = serve(t, rig.Config(t, c.Seeds(), requests), key)
	one.Ready(partitions, limit)
	other, b = serve(t, rig.Config(t, c.Seeds(), requests), key)
	share(t, &one.Web, &other.Web)
	return one, other, a, b
}

// share waits until each of two instances owns half of the partitions.
func share(t testing.TB, one, other *rig.Web) {
	t.Helper()
	await.Until(t, limit, "both own some", func() bool {
		s, x := one.Readyz()
		u, y := other.Readyz()
		return s == 200 && u == 200 && strings.Count(x, `"live"`) == partitions/2 &&
			strings.Count(y, `"live"`) == partitions/2
	})
}
