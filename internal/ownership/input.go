package ownership

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

// Input is an owner's knowledge of the log that it reads. It is safe for concurrent use.
type Input struct {
	o       *Options
	log     *slog.Logger
	metrics Metrics
	epochs  *epochs // of requests

	end     atomic.Pointer[LogEnd]    // nil: not looked at since the acquisition began
	warning atomic.Pointer[string]    // see Status.Warning
	alerted atomic.Pointer[time.Time] // when the log last said that retention is near

	ahead *ahead // of the acquisition under way; nil: nothing was asked ahead. Only its goroutine uses it
}

// ahead is the answer to a question that was asked before ReadFrom needs it.
type ahead struct {
	from  int64
	epoch partlog.Epoch
	log   partlog.Span
}

// reset forgets the acquisition before.
func (in *Input) reset() {
	in.end.Store(nil)
	in.warning.Store(nil)
	in.ahead = nil
}

// lookAhead asks the brokers in advance, for the same checkpoint as ReadFrom. ReadFrom asks again if there is no
// answer, or if it is for another checkpoint.
func (in *Input) lookAhead(ctx context.Context, last *wire.Checkpoint) {
	if now, err := partlog.SpanOf(ctx, in.o.Client, in.o.requests(), last.Epoch); err == nil {
		in.ahead = &ahead{last.Position, last.Epoch, now}
	}
}

// Read notes the leader epochs of the requests that were read, in the order of the log, and of the last batch below
// next, which may hold markers, or records that cannot be read.
func (in *Input) Read(recs []*kgo.Record, next int64, last partlog.Epoch) {
	in.epochs.read(recs, next, last)
}

// SetEnd notes a look at the log's end. It is safe for concurrent use.
func (in *Input) SetEnd(e LogEnd) {
	in.end.Store(&e)
	if e.By != nil && !e.By.Oldest.IsZero() {
		in.WatchRetention(e.By.Oldest)
	}
}

// End returns the end that SetEnd last noted; false if none was noted since the last acquisition began.
func (in *Input) End() (e LogEnd, known bool) {
	if x := in.end.Load(); x != nil {
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
func (in *Input) WatchRetention(oldest time.Time) {
	retention, lag := in.o.Settings.Last().Retention, in.o.Now().Sub(oldest)
	if retention <= 0 || lag < retention/retentionAlertDen*retentionAlertNum {
		return
	}
	last, now := in.alerted.Load(), time.Now()
	if last != nil && now.Sub(*last) < retentionAlertEvery || !in.alerted.CompareAndSwap(last, &now) {
		return
	}
	in.metrics.NearRetention(in.o.Topics.Request.Name)
	in.log.Error("intake lag near retention, which may soon delete unread records: raise retention.ms, "+
		"or find out what delays this partition",
		"lag", lag, "retention", retention)
}

// ReadFrom returns the offset at which reading continues after a checkpoint: at the checkpoint's position or, if
// retention has deleted that, at the log's start. end is the high watermark. The number of lost requests is one of
// offsets. Markers and aborted records are among them, and nothing is left that could tell.
//
// If the log was cut below the position and has grown past it again, the records that now stand below the position are
// not read. A settled offset names a generation forever: in rows, in events, in the headers by which consumers
// deduplicate. A second request at that offset would be taken for the first. So this logs an error and sets a warning,
// for an operator: only people know which producers can send again.
func (in *Input) ReadFrom(ctx context.Context, last *wire.Checkpoint) (at, end int64, err error) {
	from, epoch := last.Position, last.Epoch
	now, err := in.spanFrom(ctx, from, epoch)
	switch {
	case err != nil:
		return 0, 0, err
	case from > now.End:
		return 0, 0, &Fatal{topics.LostTail(from, in.o.requests(), now.End)}
	case from < now.Start:
		in.log.Error("requests lost to retention before they were read; count includes markers of transactions and "+
			"aborted records", "offset", from, "start", now.Start, "count", now.Start-from)
		in.metrics.Lost(in.o.Topics.Request.Name, now.Start-from)
		from, epoch = now.Start, 0
	case now.Same < from:
		in.reportCut(max(now.Same, now.Start), from)
		epoch = 0 // the records below are now of another epoch
	}
	in.epochs.begin(from, epoch)
	return from, now.End, nil
}

// reportCut reports that the log lost settled requests, and that the records in their place are not read. The next
// checkpoint ends that.
func (in *Input) reportCut(from, to int64) {
	why := fmt.Sprintf("%v was cut at offset %d and has grown again: requests up to %d were settled before, and "+
		"the records at these offsets now are not read; see \"A request log that lost its tail\" in docs/OPERATIONS.md",
		in.o.requests(), from, to)
	in.log.Error("log truncated below settled requests, the new records in their place are not read: send "+
		"those again", "offset", from, "end", to, "reason", why)
	in.metrics.Cut(in.o.Topics.Request.Name, to-from)
	in.warning.Store(&why)
}

// spanFrom asks for the log, whose records below from were read, the last ones in an epoch. If it ends below from, or
// is not as it was, it asks again for some time: a leader that was unresponsive and comes back shows the log without
// its end, until it hears that another broker leads.
func (in *Input) spanFrom(ctx context.Context, from int64, epoch partlog.Epoch) (partlog.Span, error) {
	got := in.ahead
	in.ahead = nil
	if got != nil && got.from == from && got.epoch == epoch && from <= min(got.log.End, got.log.Same) {
		return got.log, nil
	}
	for patience := time.Now().Add(behindPatience); ; {
		now, err := partlog.SpanOf(ctx, in.o.Client, in.o.requests(), epoch)
		if err != nil || from <= min(now.End, now.Same) || time.Now().After(patience) {
			return now, err
		}
		if !beats.Sleep(ctx, behindPause) {
			return now, ctx.Err()
		}
	}
}

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
	return fmt.Sprintf(
		"%d offsets from %d on cannot be read before the transaction of %s ends, which has been open since %s",
		h.Count, h.From, h.Producer, h.Since.UTC().Format(time.RFC3339))
}

// LogEnd is where the partition's request log ended at the last look.
type LogEnd struct {
	partlog.Ends
	Since time.Time // of a held log: since when the transaction has been open, as in Held
	By    *Held     // the transaction that holds it; nil: none, or too young to be worth a mention
}
