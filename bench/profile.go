package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// profileSpan is how long one profile of the instance is. A phase has several, which go tool pprof adds up. The time
// after the last whole one is not profiled.
const profileSpan = time.Second

// profileTimeout bounds one answer of the profiler.
const profileTimeout = time.Minute

// profile writes profiles of the instance's processor time until the returned function is called, and then profiles of
// its allocations and of the waiting of its goroutines since it started. It does nothing without --profiles.
func (r *run) profile(name string) (stop func()) {
	if r.Profiles == "" || r.serving.pid() == 0 {
		return func() {}
	}
	name = strings.Map(func(c rune) rune {
		if c == '/' || c == ' ' {
			return '-'
		}
		return c
	}, name)
	stop = background(context.Background(), func(ctx context.Context) {
		for n := 1; ctx.Err() == nil; n++ {
			path := filepath.Join(r.Profiles, fmt.Sprintf("service-%s-%d.pprof", name, n))
			what := fmt.Sprintf("profile?seconds=%d", profileSpan/time.Second)
			if err := fetchProfile(ctx, r.serving.pprof, what, path); err != nil && ctx.Err() == nil {
				r.Log.Warn("cannot profile the instance", "err", err)
				return
			}
		}
	})
	return func() {
		stop()
		for _, what := range []string{"allocs", "block", "mutex"} {
			path := filepath.Join(r.Profiles, fmt.Sprintf("service-%s-%s.pprof", name, what))
			if err := fetchProfile(context.Background(), r.serving.pprof, what, path); err != nil {
				r.Log.Warn("cannot profile the instance", "what", what, "err", err)
			}
		}
	}
}

// fetchProfile writes a profile that an instance returns.
func fetchProfile(ctx context.Context, addr, what, path string) error {
	status, b, err := get(ctx, fmt.Sprintf("http://%s/debug/pprof/%s", addr, what), profileTimeout)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("profile: %d", status)
	}
	return os.WriteFile(path, b, 0o644)
}
