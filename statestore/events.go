package statestore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// maxBackgroundErrors in a row, without a successful flush in between, end the store. Pebble would retry forever and
// block all writers.
const maxBackgroundErrors = 10

// longStall is how long a stall must last to be logged. Pebble slows writers down with shorter ones while it
// flushes. There are many in each burst, so they are only counted.
const longStall = time.Second

// events gets Pebble's background events. It counts, logs, and decides when the database has failed.
type events struct {
	log      *slog.Logger
	onFatal  func(error)
	onDamage func(pebble.DataCorruptionInfo) // called once or more for each damaged table

	// opening is set while Open runs. A fatal error is then returned by Open.
	opening  atomic.Bool
	fatalErr atomic.Pointer[error] // the first one
	dead     chan struct{}         // closed once fatalErr is set
	failed   atomic.Int64          // background errors since the last good flush

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

var _ pebble.Logger = (*events)(nil)

// fatalError is Pebble's call of Fatalf. Inside Open, Fatalf panics with it.
type fatalError struct {
	text  string
	cause error // nil if Pebble gave none
}

func (f *fatalError) Error() string { return "pebble: " + f.text }

func (f *fatalError) Unwrap() error { return f.cause }

// fatal reports err once, on a goroutine of its own, because the caller may hold Pebble's locks.
func (e *events) fatal(err error) {
	if e.fatalErr.CompareAndSwap(nil, &err) {
		close(e.dead)
		go e.onFatal(err)
	}
}

// err returns the fatal error, or nil.
func (e *events) err() error {
	if err := e.fatalErr.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, *err)
	}
	return nil
}

// Infof, Errorf and Fatalf make events a pebble.Logger.
func (e *events) Infof(format string, args ...any) {
	e.log.Debug("pebble message", "text", fmt.Sprintf(format, args...))
}

func (e *events) Errorf(format string, args ...any) {
	e.log.Error("pebble error", "err", fmt.Sprintf(format, args...))
}

// Fatalf never returns; Pebble relies on that. After a failed write of the manifest its memory and its disk differ. The
// disk has a prefix, and a later write could leave a hole in it.
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

func (e *events) listener(in *inputs) *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: e.backgroundError,
		DataCorruption:  e.onDamage,
		FlushEnd: func(info pebble.FlushInfo) {
			if info.Err == nil {
				e.failed.Store(0)
			}
		},
		CompactionBegin: in.begin,
		CompactionEnd: func(info pebble.CompactionInfo) {
			in.end(info)
			e.compacted.give()
		},
		WriteStallBegin: e.stallBegin,
		WriteStallEnd:   e.stallEnd,
		DiskSlow: func(info pebble.DiskSlowInfo) {
			e.slowDisk.Add(1)
			e.log.Warn("disk is slow", "path", info.Path, "op", info.OpType.String(), "duration", info.Duration)
		},
	}
}

func (e *events) stallBegin(info pebble.WriteStallBeginInfo) {
	e.stalls.Add(1)
	e.stallSince.Store(time.Now().UnixNano())
	e.stallLong.Store(time.AfterFunc(longStall, func() {
		e.log.Warn("store stalls writes", "duration", longStall, "reason", info.Reason)
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
		e.log.Info("store accepts writes again", "duration", took)
	}
}

func (e *events) backgroundError(err error) {
	if pebble.ExtractDataCorruptionInfo(err) != nil {
		return // onDamage knows; until the table is gone Pebble may report it thousands of times
	}
	e.background.Add(1)
	if n := e.failed.Add(1); hopeless(err) || n >= maxBackgroundErrors {
		// only the first one counts: Pebble tries again until it is closed
		e.fatal(fmt.Errorf("pebble in the background: %w", err))
		return
	}
	e.log.Error("store failed in the background", "err", err)
}

// writeError turns the error of writing a table into the caller's. If trying again is hopeless, because the disk is
// full, it ends the store and returns an ErrEnded.
func (e *events) writeError(err error) error {
	if !hopeless(err) {
		return err
	}
	e.fatal(fmt.Errorf("write a table: %w", err))
	return e.err()
}

// hopeless reports whether trying again cannot help.
func hopeless(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	// A damaged table will soon be gone: onDamage knows of it.
	return pebble.IsCorruptionError(err) && pebble.ExtractDataCorruptionInfo(err) == nil
}

// stalled returns how long writers have waited so far.
func (e *events) stalled() time.Duration {
	d := time.Duration(e.stallNanos.Load())
	if since := e.stallSince.Load(); since != 0 {
		d += time.Duration(time.Now().UnixNano() - since)
	}
	return d
}

// signal wakes all waiters each time it is given. mu guards ch.
type signal struct {
	mu sync.Mutex
	ch chan struct{} // closed and dropped when the signal is given
}

// wait returns a channel that is closed when the signal is given next.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
