package delaytopics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// flushRecords and flushBytes bound what is folded between two flushes, in
	// records and in bytes of keys and values. Portions that large go into the
	// store as sorted tables.
	flushRecords = 100_000
	flushBytes   = 24 << 20

	// replayWait is how long one fetch waits for data at the end of the log,
	// hence how often progress is called while nothing moves.
	replayWait = 100 * time.Millisecond
)

// Fold takes a changelog in, in log order. The bytes it is given are not written
// again and may be kept.
type Fold interface {
	// Put says that t, whose bytes are value, is pending under id from now on.
	Put(id, value []byte, t *timer.Timer) error
	// Delete says that nothing is pending under id, whether it was or not.
	Delete(id []byte) error
	// Checkpoint gives the value of a checkpoint record.
	Checkpoint(raw []byte) error
	// Flush says that what came so far is the fold of the changelog below
	// position.
	Flush(position int64) error
}

// Replay folds the changelog partition that r reads, from r's position on, until
// the claim is met for which until is true. It returns the last checkpoint
// before that, if there was one behind the position; one that was folded earlier
// is the sink's to know. The last Flush has the offset behind the claim, earlier
// ones follow each 100,000 records or 24 MB, so that a replay that is broken off
// is continued, not repeated.
//
// progress, if not nil, is called after every fetch with the reader's position
// and the log's end, at least every replayWait: a position that stands below the
// end is held up by an open transaction.
//
// A record of a later version is ErrNewerFormat, one that is damaged ErrCorrupt;
// both name topic, partition and offset. Other errors are those of r and of the
// fold. r may have read ahead of the claim: drop it.
func Replay(
	ctx context.Context, r *partlog.Reader, fold Fold,
	until func(c Claim) bool, progress func(position, end int64),
) (last Checkpoint, found bool, err error) {
	p := replay{fold: fold, until: until}
	err = pages(ctx, r, progress, func(page partlog.Page) (bool, error) { return p.page(page.Records) })
	if err != nil {
		return Checkpoint{}, false, fmt.Errorf("replay %v: %w", r.Target(), err)
	}
	return p.last, p.found, nil
}

// FindCheckpoint reads the changelog partition that r reads, from r's position
// up to the offset end, for its last checkpoint alone. With the high watermark
// for end it waits for the transactions that are open there.
func FindCheckpoint(
	ctx context.Context, r *partlog.Reader, end int64, progress func(position, end int64),
) (last Checkpoint, found bool, err error) {
	if r.Position() >= end {
		return last, false, nil
	}
	err = pages(ctx, r, progress, func(page partlog.Page) (bool, error) {
		for _, rec := range page.Records {
			if kind, _, err := ParseKey(rec.Key); err != nil {
				return false, at(rec, err)
			} else if kind != KindCheckpoint || rec.Offset >= end {
				continue
			}
			if last, err = DecodeCheckpoint(rec.Value); err != nil {
				return false, at(rec, err)
			}
			found = true
		}
		return r.Position() >= end, nil
	})
	if err != nil {
		return Checkpoint{}, false, fmt.Errorf("find the last checkpoint of %v: %w", r.Target(), err)
	}
	return last, found, nil
}

// pages calls take with every page until it says that it is done.
func pages(
	ctx context.Context, r *partlog.Reader, progress func(position, end int64),
	take func(partlog.Page) (done bool, err error),
) error {
	r.SetCompacted(true)
	for {
		page, err := r.Next(ctx, replayWait)
		if err != nil {
			return err
		}
		done, err := take(page)
		if err != nil {
			return err
		}
		if progress != nil {
			progress(r.Position(), page.HighWatermark)
		}
		if done {
			return nil
		}
	}
}

// replay is the state of one Replay; it knows records, not where they come from.
type replay struct {
	fold  Fold
	until func(c Claim) bool

	last  Checkpoint
	found bool

	// What was folded since the last flush.
	records, bytes int
}

// page folds records until the claim is met.
func (p *replay) page(records []*kgo.Record) (done bool, err error) {
	for _, rec := range records {
		if done, err = p.record(rec); err != nil {
			return false, at(rec, err)
		}
		p.records++
		p.bytes += len(rec.Key) + len(rec.Value)
		if !done && p.records < flushRecords && p.bytes < flushBytes {
			continue
		}
		if err := p.fold.Flush(rec.Offset + 1); err != nil {
			return false, err
		}
		if done {
			return true, nil
		}
		p.records, p.bytes = 0, 0
	}
	return false, nil
}

func (p *replay) record(rec *kgo.Record) (done bool, err error) {
	kind, id, err := ParseKey(rec.Key)
	if err != nil {
		return false, err
	}
	switch kind {
	case KindTimer:
		return false, p.timer(id, rec.Value)
	case KindCheckpoint:
		return false, p.checkpoint(rec.Value)
	default:
		c, err := DecodeClaim(rec.Value)
		c.Appended = rec.Timestamp.UnixMilli()
		return err == nil && p.until(c), err
	}
}

func (p *replay) timer(id, value []byte) error {
	if value == nil {
		return p.fold.Delete(id)
	}
	t, err := timer.Decode(value)
	switch {
	case errors.Is(err, timer.ErrNewerFormat):
		return fmt.Errorf("%w: %w", ErrNewerFormat, err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case string(t.ID) != string(id):
		return fmt.Errorf("timer %q under the key of %q: %w", t.ID, id, ErrCorrupt)
	}
	return p.fold.Put(id, value, t)
}

func (p *replay) checkpoint(value []byte) (err error) {
	c, err := DecodeCheckpoint(value)
	if err != nil {
		return err
	}
	p.last, p.found = c, true
	return p.fold.Checkpoint(value)
}

// at names the record in an error.
func at(rec *kgo.Record, err error) error {
	return fmt.Errorf("record %v: %w", place(rec), err)
}
