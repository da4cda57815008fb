package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
)

const (
	// callersEach is how many callers read each of dead letters, timers and events.
	callersEach = 3
	// callAgain is how long a caller waits that was refused.
	callAgain = 100 * time.Millisecond
)

// callers read as much of the API as it lets them, until they are stopped.
type callers struct {
	t      *testing.T
	api    *caller.Caller
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards the following fields
	read    map[string]int
	refused map[string]int // by kind, status and reason
}

func startCallers(t *testing.T, api, requests string) *callers {
	ctx, cancel := context.WithCancel(t.Context())
	c := &callers{t: t, api: caller.New(t, api), cancel: cancel, read: make(map[string]int),
		refused: make(map[string]int)}
	c.api.HTTP.Timeout = 0 // of streams
	topic := "/v1/topics/" + requests
	for i := range callersEach {
		c.wg.Go(func() {
			c.pages(ctx, "timers", topic+"/timers",
				url.Values{"order": {[]string{"due", "id"}[i%2]}, "limit": {"1000"}})
		})
		c.wg.Go(func() { c.pages(ctx, "dead letters", topic+"/dead-letters", url.Values{"limit": {"100"}}) })
		c.wg.Go(func() { c.streams(ctx, topic+"/events") })
	}
	return c
}

// stop ends the callers once some have read something. Lists of timers may be refused as long as others ask for them
// too: a call has ten seconds, which is too short for the values of a MiB of 256 partitions.
func (c *callers) stop() {
	c.t.Helper()
	_, heard := await.Within(trialLimit, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.read["dead letters"] > 0
	})
	c.cancel()
	c.wg.Wait()
	c.t.Logf("callers have read %v, refused: %v", c.read, c.refused)
	if !heard {
		c.t.Errorf("callers have read no dead letters within %s", trialLimit)
	}
}

func (c *callers) note(kind string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read[kind] += n
}

// get calls, until the context ends. A call that is refused for load, or because no instance is there, is made again.
// ok is false at the end.
func (c *callers) get(ctx context.Context, kind, at string) (*http.Response, bool) {
	for ctx.Err() == nil {
		resp, err := c.api.HTTP.Do(c.api.Prepare(http.MethodGet, at, nil).WithContext(ctx))
		if err == nil && resp.StatusCode == http.StatusOK {
			return resp, true
		}
		status, reason := 0, ""
		if err == nil {
			var problem struct{ Reason string }
			_ = json.NewDecoder(resp.Body).Decode(&problem)
			status, reason = resp.StatusCode, problem.Reason
			_ = resp.Body.Close()
		}
		c.mu.Lock()
		c.refused[fmt.Sprintf("%s: %d %s", kind, status, reason)]++
		c.mu.Unlock()
		if status == http.StatusBadRequest || status == http.StatusInternalServerError ||
			status == http.StatusUnauthorized {
			c.t.Errorf("%s answers %d", at, status)
			return nil, false
		}
		await.For(c.t, callAgain)
	}
	return nil, false
}

// pages reads lists from the begin to the end, again and again.
func (c *callers) pages(ctx context.Context, kind, at string, query url.Values) {
	for ctx.Err() == nil {
		resp, ok := c.get(ctx, kind, at+"?"+query.Encode())
		if !ok {
			return
		}
		var page struct {
			Timers      []json.RawMessage `json:"timers"`
			DeadLetters []json.RawMessage `json:"deadLetters"`
			Cursor      string            `json:"cursor"`
		}
		err := json.NewDecoder(resp.Body).Decode(&page)
		_ = resp.Body.Close()
		if err != nil && ctx.Err() == nil {
			c.note(fmt.Sprint("broken ", kind), 1)
			page.Cursor = ""
		}
		c.note(kind, len(page.Timers)+len(page.DeadLetters))
		if query.Del("cursor"); page.Cursor != "" {
			query.Set("cursor", page.Cursor)
		}
	}
}

// streams reads events as they happen.
func (c *callers) streams(ctx context.Context, at string) {
	for {
		resp, ok := c.get(ctx, "events", at)
		if !ok {
			return
		}
		buffer := make([]byte, 64<<10)
		for {
			n, err := resp.Body.Read(buffer)
			c.note("events", n)
			if err != nil {
				break
			}
		}
		_ = resp.Body.Close()
	}
}
