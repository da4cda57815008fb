package route

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// ownersAge is how old what is known of owners may be when nothing speaks against it,
	// ownersPause how soon it is read again when something does.
	ownersAge   = time.Second
	ownersPause = 100 * time.Millisecond
	// ownersTimeout bounds one look.
	ownersTimeout = 3 * time.Second
)

// Owner is who has committed an offset of a partition last.
type Owner struct {
	Process string // ID of its process
	API     string // address of its API, as a URL; empty: it has told none
}

// Directory reads who owns the partitions of the group.
type Directory interface {
	Owners(ctx context.Context) (map[timer.TopicPartition]Owner, error)
}

// owners is what was read of the directory.
type owners struct {
	from Directory

	mu  sync.Mutex // guards what follows
	at  time.Time  // when known was asked for
	all map[timer.TopicPartition]Owner
	// asking is the look under way, closed when it has ended; nil: none.
	asking chan struct{}
	err    error // of the last look
}

// of returns the owners as they were max ago or later. All who find that too old wait for the same
// look at the directory.
func (o *owners) of(ctx context.Context, max time.Duration) (map[timer.TopicPartition]Owner, error) {
	for {
		o.mu.Lock()
		if o.err == nil && time.Since(o.at) < max {
			defer o.mu.Unlock()
			return o.all, nil
		}
		if o.asking == nil {
			o.asking = make(chan struct{})
			go o.look(o.asking)
		}
		wait, before := o.asking, o.at
		o.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: who owns it cannot be read: %w", ErrMoving, ctx.Err())
		case <-wait:
		}
		o.mu.Lock()
		all, err, fresh := o.all, o.err, o.at != before
		o.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("%w: who owns it cannot be read: %w", ErrMoving, err)
		}
		if fresh {
			return all, nil
		}
	}
}

// look reads the directory for all who wait. It ends within ownersTimeout.
func (o *owners) look(done chan struct{}) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), ownersTimeout)
	defer cancel()
	all, err := o.from.Owners(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at, o.err, o.asking = began, err, nil
	if err == nil {
		o.all = all
	}
	close(done)
}
