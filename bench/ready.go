package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// readyPoll is how often /readyz is asked.
	readyPoll = 5 * time.Millisecond
	// readyTimeout bounds one answer.
	readyTimeout = 2 * time.Second
)

// awaitReady waits until an instance is ready and owns all partitions.
func awaitReady(ctx context.Context, addr string, partitions int) error {
	t := time.NewTicker(readyPoll)
	defer t.Stop()
	for {
		ready, live := askReady(ctx, addr)
		if ready && live == partitions {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d live partitions, %d are: %w", partitions, live, ctx.Err())
		case <-t.C:
		}
	}
}

// askReady asks /readyz once; no answer is not ready.
func askReady(ctx context.Context, addr string) (ready bool, live int) {
	resp, err := get(ctx, addr, "/readyz")
	if err != nil {
		return false, 0
	}
	defer resp.Body.Close()
	var body struct {
		Detail struct {
			Topics map[string]map[string]struct {
				State string `json:"state"`
			} `json:"topics"`
		} `json:"detail"`
	}
	if json.NewDecoder(resp.Body).Decode(&body) != nil {
		return false, 0
	}
	for _, ps := range body.Detail.Topics {
		for _, p := range ps {
			if p.State == "live" {
				live++
			}
		}
	}
	return resp.StatusCode == http.StatusOK, live
}

// get asks an instance; the caller closes the body.
func get(ctx context.Context, addr, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, err
	}
	return (&http.Client{Timeout: readyTimeout}).Do(req)
}
