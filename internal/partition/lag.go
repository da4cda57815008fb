package partition

import (
	"sync"
	"time"
)

// caughtUp is how long after the last request was read the lag is shown as 0, if no request follows.
const caughtUp = time.Second

// lag is how far intake is behind the log. mu guards all of it.
//
// The lag has two sources. A delivery knows the high watermark of its fetch, and whether only markers lie before it.
// But nothing is delivered while intake is paused, nor from behind the first record of any producer's open transaction.
// Then the log itself is asked, once a second: see Partition.SetLogEnd. Until deliveries come again, offsets are
// counted, including markers and aborted records.
type lag struct {
	mu     sync.Mutex
	behind int64     // records that were waiting at the last delivery
	newest time.Time // timestamp of the last request read
	at     time.Time // when it was read
}

func (l *lag) read(behind int64, newest, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.behind, l.newest, l.at = max(0, behind), newest, at
}

// ends notes a delivery without requests, behind which none follow.
func (l *lag) ends() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.behind = 0
}

// unread is the part of the log that a look has found and intake has not delivered.
type unread struct {
	behind int64     // offsets
	oldest time.Time // timestamp of the first of them if an open transaction holds them; otherwise zero
}

// now returns the lag to show. It is the age of the newest request when it was read, or its age now if more requests
// wait, or the age of the oldest request that an open transaction holds; some time after the last request it is 0.
func (l *lag) now(now time.Time, paused bool, u unread) (behind int64, age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	behind = max(l.behind, u.behind)
	if !u.oldest.IsZero() {
		age = now.Sub(u.oldest)
	}
	switch {
	case l.at.IsZero():
	case paused, l.behind > 0:
		age = max(age, now.Sub(l.newest))
	case behind == 0 && now.Sub(l.at) <= caughtUp:
		age = l.at.Sub(l.newest)
	}
	return behind, age
}
