package partition

import (
	"context"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/partlog"
)

const (
	// caughtUp is how long after the last request, with none behind it, the lag
	// is shown as over.
	caughtUp = time.Second
	// lagLook is how often the end of the log is asked for while intake is paused,
	// and nothing comes that would tell; lagTimeout bounds one look.
	lagLook, lagTimeout = time.Second, 2 * time.Second
)

// lag is how far intake is behind the log. mu guards all of it.
type lag struct {
	mu     sync.Mutex
	behind int64     // records that are known to wait
	newest time.Time // timestamp of the last request read
	at     time.Time // when it was read
	looked time.Time // when the log's end was asked for
}

func (l *lag) read(behind int64, newest, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.behind, l.newest, l.at = max(0, behind), newest, at
}

// now returns what to show: the age of the newest request when it was read, or
// now if more waits, and nothing some time after the last.
func (l *lag) now(now time.Time, paused bool) (behind int64, age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.at.IsZero():
		return 0, 0
	case paused, l.behind > 0:
		return l.behind, now.Sub(l.newest)
	case now.Sub(l.at) > caughtUp:
		return 0, 0
	}
	return 0, l.at.Sub(l.newest)
}

// due reports whether the log's end is to be asked for now.
func (l *lag) due(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.looked) < lagLook {
		return false
	}
	l.looked = now
	return true
}

func (l *lag) ends(behind int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.behind = max(0, behind)
}

func (p *Partition) showLag() {
	behind, age := p.lag.now(p.o.Now(), p.isPaused())
	p.o.Metrics.setLag(p.o.Topics.Request.Name, p.o.Partition, behind, age)
}

// followLag keeps the lag true where no delivery does: while intake is paused,
// and when it has caught up.
func (p *Partition) followLag(ctx context.Context) {
	if p.isPaused() && p.lag.due(time.Now()) {
		p.Aside(func() {
			ctx, cancel := context.WithTimeout(ctx, lagTimeout)
			defer cancel()
			if _, _, end, err := partlog.Bounds(ctx, p.o.Client, p.Requests()); err == nil {
				p.lag.ends(end - p.delivered.Load())
			}
		})
	}
	p.showLag()
}
