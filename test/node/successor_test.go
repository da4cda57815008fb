package node_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// answered is a question about a timer that an instance has answered with success.
type answered struct {
	method       string
	began, ended time.Time
	offset       int64 // of the request that the timer comes from
}

// callUntil makes a call again and again until ctx ends, and tells of the answers that have come whole.
func callUntil(ctx context.Context, method, url string, tell func(answered)) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
		if err != nil {
			return
		}
		if method == http.MethodPut {
			req.Header.Set(waterclock.HeaderAfter, "1h")
			req.Header.Set(waterclock.HeaderTargetTopic, target)
		}
		a, body := answered{method: method, began: time.Now()}, struct{ Source string }{}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		err = json.NewDecoder(resp.Body).Decode(&body)
		resp.Body.Close()
		if err == nil && resp.StatusCode < http.StatusMultipleChoices {
			if source, err := waterclock.ParseSource(body.Source); err == nil {
				a.offset = source.Offset
			}
			a.ended = time.Now()
			tell(a)
		}
	}
}

// A process with the instance ID of one that lives takes its place. Both are asked about a timer that changes: at
// most one of them answers at any time, and no answer is older than one that had come before it was
// asked for. Nothing is written while the place changes, for a step that is refused would tell the old one.
func TestASuccessorOfTheSameNameAnswersAlone(t *testing.T) {
	t.Parallel()
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, requests, target))
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex // guards what both have answered
	var old, successor []answered
	var callers sync.WaitGroup
	defer callers.Wait()
	defer cancel()
	serve := func(all *[]answered) {
		cfg, o := rig.Config(t, c.ListenAddrs(), requests), node.Options{}
		cfg.InstanceID, cfg.API = "wc-0", "127.0.0.1:0"
		at := make(chan string, 1)
		o.StartedAPI = func(addr string) { at <- addr }
		in := rig.Serve(t, cfg, o)
		url := <-at + "/v1/topics/" + requests + "/timers/x"
		call := func(ctx context.Context, method string) {
			callers.Go(func() {
				callUntil(ctx, method, url, func(a answered) {
					mu.Lock()
					defer mu.Unlock()
					*all = append(*all, a)
				})
			})
		}
		answers := func(method string, n int) {
			await.Until(t, limit, "it answers", func() bool {
				mu.Lock()
				defer mu.Unlock()
				some := 0
				for _, a := range *all {
					if a.method == method {
						some++
					}
				}
				return some >= n
			})
		}
		call(ctx, http.MethodGet)
		call(ctx, http.MethodGet)
		in.Ready(1, limit)
		if all == &successor {
			answers(http.MethodGet, 100)
		}
		writing, stop := context.WithCancel(ctx)
		defer stop()
		call(writing, http.MethodPut)
		answers(http.MethodPut, 5)
		stop()
		answers(http.MethodGet, 200)
	}
	serve(&old)
	serve(&successor)
	cancel()
	callers.Wait()

	var last answered // of the old one, by when it was asked for
	for _, a := range old {
		if a.began.After(last.began) && a.method == http.MethodGet {
			last = a
		}
	}
	newest, over := int64(0), last.ended
	for _, a := range old {
		newest = max(newest, a.offset)
		if a.ended.After(over) {
			over = a.ended
		}
	}
	for _, a := range successor {
		if a.method == http.MethodGet && a.ended.Before(last.began) {
			t.Fatalf("the old one answers a question %s after its successor has answered one", last.began.Sub(a.ended))
		}
		if a.method == http.MethodGet && a.began.After(over) && a.offset < newest {
			t.Fatalf("the successor shows the timer of request %d, and the old one had shown that of %d",
				a.offset, newest)
		}
	}
	t.Logf("%d answers of the old one, %d of its successor", len(old), len(successor))
}
