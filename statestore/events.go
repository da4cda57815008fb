package statestore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// maxBackgroundErrors in a row, without a flush that worked between them, end
// the store: Pebble repeats forever and would block all writers meanwhile.
const maxBackgroundErrors = 10

// longStall is from when on a stall is worth a line. Shorter ones are how Pebble
// slows writers down while it flushes, many in each burst; they are counted.
const longStall = time.Second

// events hears what Pebble does in the background, counts it and decides when
// the database cannot go on.
type events struct {
	log      *slog.Logger
	onFatal  func(error)
	onDamage func(pebble.DataCorruptionInfo) // called once or more for each damaged table

	readOnly bool // damage is the reader's matter

	// opening is set while Open runs: a fatal error then becomes Open's error.
	opening atomic.Bool
	fatally atomic.Pointer[error] // the first fatal error
	dead    chan struct{}         // closed with it
	failed  atomic.Int64          // background errors since the last good flush

	stalls     atomic.Int64
	stallNanos atomic.Int64
	stallSince atomic.Int64 // Unix ns, 0 if there is no stall
	stallLong  atomic.Pointer[time.Timer]
	slowDisk   atomic.Int64
	background atomic.Int64

	damagedTables atomic.Int64

	compacted   signal // given at the end of each compaction
	replayWaits atomic.Int64
	replayNanos atomic.Int64
}

// fatalError is what Pebble told Fatalf. Inside Open, Fatalf panics with it.
type fatalError struct {
	text  string
	cause error // nil if Pebble gave none
}

func (e *fatalError) Error() string { return "pebble: " + e.text }

func (e *fatalError) Unwrap() error { return e.cause }

// fatal reports err once, to a goroutine of its own: the caller may hold locks
// of Pebble.
func (e *events) fatal(err error) {
	if e.fatally.CompareAndSwap(nil, &err) {
		close(e.dead)
		go e.onFatal(err)
	}
}

// err is the fatal error, nil while there is none.
func (e *events) err() error {
	if err := e.fatally.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, *err)
	}
	return nil
}

// Infof, Errorf and Fatalf make events a pebble.Logger.
func (e *events) Infof(format string, args ...any) {
	e.log.Debug("pebble", "msg", fmt.Sprintf(format, args...))
}

func (e *events) Errorf(format string, args ...any) {
	e.log.Error("pebble", "err", fmt.Sprintf(format, args...))
}

// Fatalf never returns: Pebble relies on that. After a failed write of the
// manifest its memory and its disk differ, and a later write could make a hole
// in what is a prefix now.
func (e *events) Fatalf(format string, args ...any) {
	err := &fatalError{text: fmt.Sprintf(format, args...)}
	for _, arg := range args {
		if cause, ok := arg.(error); ok {
			err.cause = cause
		}
	}
	if e.opening.Load() {
		panic(err)
	}
	e.fatal(err)
	select {}
}

func (e *events) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: e.backgroundError,
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			if !e.readOnly {
				e.onDamage(info)
			}
		},
		FlushEnd: func(info pebble.FlushInfo) {
			if info.Err == nil {
				e.failed.Store(0)
			}
		},
		CompactionEnd:   func(pebble.CompactionInfo) { e.compacted.give() },
		WriteStallBegin: e.stallBegin,
		WriteStallEnd:   e.stallEnd,
		DiskSlow: func(info pebble.DiskSlowInfo) {
			e.slowDisk.Add(1)
			e.log.Warn("disk is slow", "path", info.Path, "op", info.OpType.String(), "took", info.Duration)
		},
	}
}

func (e *events) stallBegin(info pebble.WriteStallBeginInfo) {
	e.stalls.Add(1)
	e.stallSince.Store(time.Now().UnixNano())
	e.stallLong.Store(time.AfterFunc(longStall, func() {
		e.log.Warn("store stalls writes", "for", longStall, "reason", info.Reason)
	}))
}

func (e *events) stallEnd() {
	since := e.stallSince.Swap(0)
	if since == 0 {
		return
	}
	took := time.Duration(time.Now().UnixNano() - since)
	e.stallNanos.Add(took.Nanoseconds())
	if long := e.stallLong.Swap(nil); long != nil && !long.Stop() {
		e.log.Info("store takes writes again", "after", took)
	}
}

func (e *events) backgroundError(err error) {
	if pebble.ExtractDataCorruptionInfo(err) != nil {
		return // onDamage has heard of it; until the table is gone Pebble may try it thousands of times
	}
	e.background.Add(1)
	if n := e.failed.Add(1); hopeless(err) || n >= maxBackgroundErrors {
		e.fatal(fmt.Errorf("pebble in the background: %w", err)) // says it once; Pebble tries again until it is closed
		return
	}
	e.log.Error("store failed in the background", "err", err)
}

// tableError returns why a table of ours could not be written. If trying again is in
// vain, because the disk is full, the store ends and the error is an ErrEnded.
func (e *events) tableError(err error) error {
	if !hopeless(err) {
		return err
	}
	e.fatal(fmt.Errorf("write a table: %w", err))
	return e.err()
}

// hopeless errors do not go away by repeating.
func hopeless(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	// Of a damaged table onDamage has heard, and it will soon be gone.
	return pebble.IsCorruptionError(err) && pebble.ExtractDataCorruptionInfo(err) == nil
}

// stalled is the time that writers have waited so far.
func (e *events) stalled() time.Duration {
	d := time.Duration(e.stallNanos.Load())
	if since := e.stallSince.Load(); since != 0 {
		d += time.Duration(time.Now().UnixNano() - since)
	}
	return d
}
