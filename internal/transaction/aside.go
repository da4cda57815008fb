package transaction

import (
	"context"
	"sync"
)

// aside is the goroutines beside the loops of lanes: what takes too long for a loop. They end when ctx does.
type aside struct {
	sync.WaitGroup
	ctx  context.Context
	stop context.CancelFunc
}

func newAside() *aside {
	a := new(aside)
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}
