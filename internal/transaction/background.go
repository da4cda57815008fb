package transaction

import (
	"context"
	"sync"
)

// background runs the goroutines for work that takes too long for the loop of a lane. They end when ctx does.
type background struct {
	sync.WaitGroup
	ctx  context.Context
	stop context.CancelFunc
}

func newBackground() *background {
	a := new(background)
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}
