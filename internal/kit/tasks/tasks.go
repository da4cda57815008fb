// Package tasks starts goroutines, stops them and waits for them.
//
//	running := tasks.New(ctx)
//	running.Go(reader.run) // func(context.Context)
//	defer running.Stop()   // ends their context, and waits
//
// Use errgroup if the first error of a goroutine is to end the others.
package tasks

import (
	"context"
	"sync"
)

// Group is a set of goroutines that end together. They end when their context does, which is with the context that the
// group was made with, or by Cancel. All methods may be called again, and before anything was started. Go must not race
// with a Wait that may find no goroutine running.
type Group struct {
	ctx     context.Context //nolint:containedctx // it is the goroutines' lifetime
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// New returns a group without goroutines. The caller stops it.
func New(ctx context.Context) *Group {
	g := new(Group)
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// Context returns the context of the goroutines.
func (g *Group) Context() context.Context { return g.ctx }

// Go calls f on a goroutine.
func (g *Group) Go(f func(ctx context.Context)) { g.running.Go(func() { f(g.ctx) }) }

// Cancel ends the context, and does not wait.
func (g *Group) Cancel() { g.cancel() }

// Wait waits until all goroutines have returned.
func (g *Group) Wait() { g.running.Wait() }

// Stop ends the context, and waits.
func (g *Group) Stop() {
	g.cancel()
	g.running.Wait()
}
