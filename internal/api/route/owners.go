package route

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// ownersAge limits the age of the known owners. If an instance turns out not to be the owner, they are read
	// again, but not within ownersPause.
	ownersAge   = time.Second
	ownersPause = 100 * time.Millisecond
	// ownersTimeout bounds one read of the directory.
	ownersTimeout = 3 * time.Second
)

// Owner is the process that has committed the last offset of a partition.
type Owner struct {
	Process string // ID of its process
	API     string // address of its API, as a URL; empty: it has none
}

// Directory reads the owners of the partitions of the group.
type Directory interface {
	Owners(ctx context.Context) (map[timer.TopicPartition]Owner, error)
}

// owners caches the directory.
type owners struct {
	from   Directory
	flight singleflight.Group // callers that find the cache too old share one read

	mu  sync.Mutex // guards the fields below
	at  time.Time  // when the last read began; zero: it has failed
	all map[timer.TopicPartition]Owner
}

// of returns the owners of at most max ago.
func (o *owners) of(ctx context.Context, max time.Duration) (map[timer.TopicPartition]Owner, error) {
	o.mu.Lock()
	at, all := o.at, o.all
	o.mu.Unlock()
	if time.Since(at) < max {
		return all, nil
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: its owner cannot be read: %w", ErrMoving, ctx.Err())
	case read := <-o.flight.DoChan("", o.read):
		if read.Err != nil {
			return nil, fmt.Errorf("%w: its owner cannot be read: %w", ErrMoving, read.Err)
		}
		return read.Val.(map[timer.TopicPartition]Owner), nil
	}
}

// read reads the directory. It does not end with its caller, but after ownersTimeout.
func (o *owners) read() (any, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), ownersTimeout)
	defer cancel()
	all, err := o.from.Owners(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at, o.all = began, all; err != nil {
		o.at = time.Time{}
	}
	return all, err
}
