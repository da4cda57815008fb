package ownership

import (
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/partlog"
)

// Held describes an open transaction, of any producer, that keeps the requests at the end of a request
// log from being read, cancels among them. No read_committed reader gets past its first record.
type Held struct {
	From     int64     // offset of the transaction's first record
	Count    int64     // offsets from there to the log's end, including markers
	Since    time.Time // when the transaction began, or when it was first seen if that is not known
	Oldest   time.Time // timestamp of the first record; zero: not known
	Producer string    // describes the producer to people
	// ProducerID and TransactionalID are "" while they are not known.
	ProducerID, TransactionalID string
}

// String is a sentence for an operator.
func (h *Held) String() string {
	return fmt.Sprintf("%d offsets from %d on cannot be read before the transaction of %s ends, which has been open since %s",
		h.Count, h.From, h.Producer, h.Since.UTC().Format(time.RFC3339))
}

// LogEnd is where the partition's request log ended at the last look.
type LogEnd struct {
	partlog.Edge
	Since time.Time // of a held log: since when the transaction has been open, as in Held
	By    *Held     // the transaction that holds it; nil: none, or too young to be worth a mention
}

// SetLogEnd notes a look at the log's end. It is safe for concurrent use.
func (l *Life) SetLogEnd(e LogEnd) {
	l.logEnd.Store(&e)
	if e.By != nil && !e.By.Oldest.IsZero() {
		l.WatchRetention(e.By.Oldest)
	}
}

// LogEnd returns what SetLogEnd last noted; false if nothing was noted since the last acquisition began.
func (l *Life) LogEnd() (e LogEnd, known bool) {
	if x := l.logEnd.Load(); x != nil {
		return *x, true
	}
	return e, false
}

const (
	// Intake that lags by more than this part of the request topic's retention raises an alert:
	// requests that are not read in time are deleted unread.
	retentionAlertNum, retentionAlertDen = 3, 4
	// retentionAlertEvery is how often the alert is repeated.
	retentionAlertEvery = time.Minute
)

// WatchRetention raises an alert if a record with this timestamp, which is still needed, may soon be
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
