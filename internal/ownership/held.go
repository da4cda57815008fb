package ownership

import (
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/partlog"
)

// Held says what keeps the requests at the end of a log from being read: a transaction, of
// whatever producer, that is open. No read_committed reader gets past its first record.
type Held struct {
	From     int64     // offset of that record
	Count    int64     // offsets from there to the log's end, markers among them
	Since    time.Time // when the transaction began
	Oldest   time.Time // timestamp of that record; zero: not known
	Producer string    // its name, for people
	// ProducerID and TransactionalID are "" while they are not known.
	ProducerID, TransactionalID string
}

// String is a sentence for an operator.
func (h *Held) String() string {
	return fmt.Sprintf("%d offsets from %d on cannot be read before the transaction of %s ends, which has been open since %s",
		h.Count, h.From, h.Producer, h.Since.UTC().Format(time.RFC3339))
}

// LogEnd is where the log of what is owned ended when it was looked at last.
type LogEnd struct {
	partlog.Edge
	Since time.Time // if it is held: from when its first record is, or when that was first seen
	By    *Held     // what holds it; nil: nothing, or nothing for long enough to be told
}

// SetLogEnd may be called at any time.
func (l *Life) SetLogEnd(e LogEnd) {
	l.logEnd.Store(&e)
	if e.By != nil && !e.By.Oldest.IsZero() {
		l.WatchRetention(e.By.Oldest)
	}
}

// LogEnd is what SetLogEnd was told last, false if nothing since the last acquisition began.
func (l *Life) LogEnd() (e LogEnd, known bool) {
	if x := l.logEnd.Load(); x != nil {
		return *x, true
	}
	return e, false
}

const (
	// Intake that lags more than this part of the request topic's retention is an alert:
	// what is not read in time is deleted unread.
	retentionAlertNum, retentionAlertDen = 3, 4
	// retentionAlertEvery is how often it is repeated.
	retentionAlertEvery = time.Minute
)

// WatchRetention alerts if a record of that timestamp, which is still needed, may soon be
// deleted. It is safe for concurrent use.
func (l *Life) WatchRetention(oldest time.Time) {
	retention, lag := l.Settings().Retention, l.o.Now().Sub(oldest)
	if retention <= 0 || lag < retention/retentionAlertDen*retentionAlertNum {
		return
	}
	last, now := l.alerted.Load(), time.Now()
	if last != nil && now.Sub(*last) < retentionAlertEvery || !l.alerted.CompareAndSwap(last, &now) {
		return
	}
	l.metrics.NearRetention(l.o.Topics.Request.Name)
	l.Log.Error("records are read, or passed on, so late that retention may soon delete them: raise retention.ms, or find out what holds up this partition",
		"lag", lag, "retention", retention)
}
