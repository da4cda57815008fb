package partlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// idlePause is the pause after a fetch that brought nothing. It grows to an idleShare-th of the time since
	// something came, up to idlePauseMax. The pause is made here and not at the broker, because there it would hold up
	// the fetches of all others.
	idlePause, idlePauseMax = 2 * time.Millisecond, 250 * time.Millisecond
	idleShare               = 16
	// idleLook is the time after which the leader is looked up again while nothing comes: a former leader that does not
	// know its successor goes on answering.
	idleLook = time.Second
	// answerWait bounds one request, so that a leader that responds gets more than one try. A fetch may be slow because
	// of its size: each one that is not answered halves the size of the next, and gives it answerWait more, up to
	// slowMost times. An answer in a quickShare-th of answerWait takes one such step back.
	//
	// The client may be less patient: kgo gives up an answer that does not come within its RequestTimeoutOverhead,
	// which is 2 s in an instance and 10 s in most commands. So no batch may take longer than that, and it is mainly
	// the size that helps.
	answerWait = 5 * time.Second
	slowMost   = 4
	quickShare = 8
)

// errNoAnswer says that a leader has not answered in time, or was not asked because the gate is shut.
var errNoAnswer = errors.New("no answer")

// To is Follow up to an offset that the log has reached before. If the position has
// reached that already, To reads nothing.
func (r *Reader) To(ctx context.Context, end int64) iter.Seq2[Page, error] {
	if r.position >= end {
		return func(func(Page, error) bool) {}
	}
	return r.Follow(ctx, func(context.Context) (int64, error) { return end, nil })
}

// Follow is the loop over a log. It reads up to the offset that end returns, perhaps beyond it, and asks again for that
// offset while nothing comes. It yields each page, and one without records after each fetch that brought nothing, was
// not answered, or was not sent because the gate is shut. It goes on until a fetch was answered, even if the position
// is at the end: only a fetch notices that the position is not in the log.
//
// The errors are those of Next and of end, and ErrLogCut: see the package comment. An error ends the loop, unless the
// caller moves the position past what cannot be read (SetPosition).
func (r *Reader) Follow(ctx context.Context, end func(context.Context) (int64, error)) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		moved, looked, short := time.Now(), time.Now(), time.Time{}
		fetched := false            // the last fetch was answered, from a position in the log
		var beyond *OutOfRangeError // the last answer, if the position is beyond the log's end
		to, err := end(ctx)
		for err == nil && (!fetched || r.position < to) {
			at := r.position
			var page Page
			page, err = r.page(ctx)
			switch out, outside := errors.AsType[*OutOfRangeError](err); {
			case outside && out.Position > out.End:
				r.LookAgain()
				fetched, beyond, err = false, out, nil
			case errors.Is(err, errNoAnswer):
				fetched, err = false, nil
			case ctx.Err() == nil:
				fetched, beyond = true, nil
			}
			if r.position == at {
				page.Idle = max(1, time.Since(moved))
			}
			if err == nil && page.Idle > 0 && time.Since(looked) > idleLook {
				r.LookAgain()
				looked, err = time.Now(), r.reaches(ctx, max(to, at), &short)
			}
			if !yield(page, because(err, beyond)) || err != nil && r.position == at {
				return
			}
			switch err = nil; {
			case r.position != at:
				moved, looked, short, beyond = time.Now(), time.Now(), time.Time{}, nil
			case fetched && r.position >= to:
			case beats.Sleep(ctx, min(max(idlePause, page.Idle/idleShare), idlePauseMax)):
				to, err = end(ctx)
				fetched = fetched && to >= r.position // else the log may have been cut since
			default:
				err = fmt.Errorf("read %v at %d: %w (last stable offset %d, high watermark %d)", r.Log(), at, ctx.Err(),
					page.LastStable, page.HighWatermark)
			}
		}
		if err != nil {
			yield(Page{}, because(err, beyond))
		}
	}
}

// because adds to an error that the position was beyond the log's end.
func because(err error, beyond *OutOfRangeError) error {
	if err == nil || beyond == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", err, beyond)
}

// page returns the next page, or errNoAnswer.
func (r *Reader) page(ctx context.Context) (page Page, err error) {
	if r.gate != nil {
		if open, err := r.gate(ctx); err != nil || !open {
			return page, cmp.Or(err, errNoAnswer)
		}
	}
	began, fetches := time.Now(), r.kept == nil
	err = inTime(ctx, answerWait*time.Duration(1+r.slow), func(ctx context.Context) (err error) {
		page, err = r.Next(ctx, 0)
		return err
	})
	switch {
	case errors.Is(err, errNoAnswer):
		r.slow = min(r.slow+1, slowMost)
	case r.slow > 0 && fetches && time.Since(began) < answerWait/quickShare:
		r.slow--
	}
	return page, err
}

// inTime bounds a request. It returns errNoAnswer if that is not answered in time.
func inTime(ctx context.Context, limit time.Duration, ask func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := ask(bounded)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return errNoAnswer
	}
	return err
}

// reaches returns ErrLogCut if the log has ended before an offset for CutAfter. since is when that was first seen.
func (r *Reader) reaches(ctx context.Context, to int64, since *time.Time) error {
	end := to
	err := inTime(ctx, answerWait, func(ctx context.Context) (err error) { end, err = r.End(ctx); return err })
	switch {
	case errors.Is(err, errNoAnswer):
		return nil
	case err != nil:
		return err
	case end >= to:
		*since = time.Time{}
	case since.IsZero():
		*since = time.Now()
	case time.Since(*since) >= CutAfter:
		return fmt.Errorf("read %v at %d: %w: end offset %d, was %d", r.Log(), r.position, ErrLogCut, end, to)
	}
	return nil
}

// Record waits until the offset at the position can be read, and returns the record there. It returns nil if there is
// none: it was aborted or compacted, or is a marker.
func (r *Reader) Record(ctx context.Context) (*kgo.Record, error) {
	r.maxBytes, r.room = 1, 1 // one batch, and one record of it
	at := r.position
	for page, err := range r.To(ctx, at+1) {
		if err != nil {
			return nil, err
		}
		if len(page.Records) > 0 && page.Records[0].Offset == at {
			return page.Records[0], nil
		}
	}
	return nil, nil
}
