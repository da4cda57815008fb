package tasks

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Goroutines end by Stop, by Cancel, or with the context of the group, and Stop and Wait return when the last one has.
func TestGroupEnds(t *testing.T) {
	for name, end := range map[string]func(g *Group, cancel func()){
		"Stop":    func(g *Group, _ func()) { g.Stop() },
		"Cancel":  func(g *Group, _ func()) { g.Cancel(); g.Wait() },
		"context": func(g *Group, cancel func()) { cancel(); g.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				g, ended := New(ctx), atomic.Int32{}
				for k := range 3 {
					g.Go(func(ctx context.Context) {
						<-ctx.Done()
						time.Sleep(time.Duration(k) * time.Second)
						ended.Add(1)
					})
				}
				synctest.Wait()
				if ended.Load() > 0 || g.Context().Err() != nil {
					t.Fatal("ended before it was stopped")
				}
				if end(g, cancel); ended.Load() != 3 {
					t.Errorf("%d goroutines have ended, want 3", ended.Load())
				}
				g.Stop()
				g.Go(func(ctx context.Context) { <-ctx.Done() }) // ends immediately
				g.Stop()
				cancel()
			})
		})
	}
}

// A group may be stopped before anything was started.
func TestGroupWithoutGoroutines(t *testing.T) {
	g := New(t.Context())
	g.Wait()
	g.Stop()
	g.Stop()
	if g.Context().Err() == nil {
		t.Error("stopped, and the context lives")
	}
}
