package load

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/runs"
)

const (
	// kept timers wait for tomorrow, and keptBurst are due at one moment.
	kept, keptBurst = 800_000, 300_000
	// listers read all that is pending at the same time, page by page.
	listers, listed = 4, 1000
)

// TestMemoryIsKept has a process with the least memory take in timers of tomorrow as fast as they
// come, fire a burst beside them, rebuild all of it without its directory, and be listed by
// several callers at once while timers come and go. Its peak stays within a tenth of the memory,
// before and after the rebuild.
func TestMemoryIsKept(t *testing.T) {
	runs.NeedSlow(t)
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, partitions, nil, requests+"-out")
	dir, api := filepath.Join(t.TempDir(), "data"), rig.FreeAddr(t)
	start := func() *rig.Process { return serve(t, c, requests, "--data-dir", dir, "--api", api) }
	p := start()
	w := watchOf(t, &p.Web, least().Requests)
	out := rig.Count(t, c, kept+2*keptBurst, target)
	cl, payloads := producer(t, c), rand.NewChaCha8([32]byte{7})
	send := func(first, n int, due func() time.Time) {
		t.Helper()
		w.during(sendLimit, "send", func() error {
			return sendAll(cl, first, first+n, func(i int) *kgo.Record {
				value := make([]byte, valueBytes)
				_, _ = payloads.Read(value) // never fails
				return timer(requests, target, i, due(), value)
			})
		})
	}
	far := time.Now().Add(24 * time.Hour)
	send(0, kept, func() time.Time { return far.Add(time.Duration(payloads.Uint64() % uint64(spread))) })
	soon := time.Now().Add(burstLead / 2)
	send(kept, keptBurst, func() time.Time { return soon })
	fired := func(p *rig.Process, n int, what string) {
		t.Helper()
		w.until(settleLimit, what, func() bool { return out.Received() == n })
		w.atRest(settleLimit, kept)
		rig.Fired(t, out, n)
		_, peak := p.Memory()
		t.Logf("%s: peak %.1f MiB", what, float64(peak)/mib)
		if peak > peakLimit {
			t.Errorf("%s: peak memory %.1f MiB, want %d at most", what, float64(peak)/mib, peakLimit/mib)
		}
	}
	fired(p, keptBurst, "a burst")
	stop(t, p)

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p = start()
	w = watchOf(t, &p.Web, least().Requests)
	w.atRest(settleLimit, kept)
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	pages := make([]int, listers)
	for i := range listers {
		reading.Go(func() { pages[i] = listAll(ctx, t, "http://"+api, requests, []string{"due", "id"}[i%2]) })
	}
	send(kept+keptBurst, keptBurst, func() time.Time { return time.Now().Add(2 * time.Second) })
	fired(p, 2*keptBurst, "a rebuild, lists and lives")
	reading.Wait()
	for i, n := range pages {
		if n < kept/listed {
			t.Errorf("caller %d has read %d pages of %d timers, want %d or more", i, n, listed, kept/listed)
		}
	}
	if _, peak := p.Memory(); peak > peakLimit {
		t.Errorf("behind the lists: peak memory %.1f MiB, want %d at most", float64(peak)/mib, peakLimit/mib)
	}
	stop(t, p)
}

// listAll reads all pages of a topic's timers in an order and returns their number. Calls that find
// no turn are made again.
func listAll(ctx context.Context, t *testing.T, api, topic, order string) (pages int) {
	cursor := ""
	for ctx.Err() == nil {
		query := url.Values{"order": {order}, "limit": {fmt.Sprint(listed)}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/v1/topics/"+topic+"/timers?"+query.Encode(), nil)
		if err != nil {
			t.Error(err)
			return pages
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("list: %v", err)
			}
			return pages
		}
		var page struct {
			Timers []json.RawMessage `json:"timers"`
			Cursor string            `json:"cursor"`
		}
		err = json.NewDecoder(resp.Body).Decode(&page)
		_ = resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusServiceUnavailable:
			continue
		case resp.StatusCode != http.StatusOK || err != nil:
			t.Errorf("list: %s, %v", resp.Status, err)
			return pages
		case page.Cursor == "":
			return pages + 1
		}
		pages, cursor = pages+1, page.Cursor
	}
	return pages
}
