package statestore

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/waterclock/waterclock/internal/timer"
)

// fullDisk makes writes to files with such names fail while it is on.
func fullDisk(file string) *errorfs.Toggle {
	return &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, file) {
			return syscall.ENOSPC
		}
		return nil
	})}
}

// A full disk ends the store instead of blocking its writers forever, whether a write of a table fails or one of the
// manifest.
func TestFullDisk(t *testing.T) {
	for _, file := range []string{".sst", "MANIFEST"} {
		t.Run(file, func(t *testing.T) {
			full := fullDisk(file)
			mem := vfs.NewCrashableMem()
			o := testOptions(errorfs.Wrap(mem, full))
			fatal := make(chan error, 2)
			o.OnFatal = func(err error) { fatal <- err }
			s, err := Open(o)
			must(t, err)
			k := s.Partition(partition0).Acquire()
			must(t, k.Apply(batchAt(1, put(newTimer("a", 1, 1), timer.Absent))))
			must(t, s.Flush())
			full.On()
			must(t, k.Apply(batchAt(2, put(newTimer("b", 2, 2), timer.Absent))))
			go s.Flush() // may never end
			wantErr(t, <-fatal, syscall.ENOSPC)
			wantErr(t, k.Apply(batchAt(3)), syscall.ENOSPC)
			wantErr(t, s.Close(), syscall.ENOSPC)
			if len(fatal) != 0 {
				t.Fatal("told twice")
			}
			s = mustOpen(t, testOptions(mem.CrashClone(vfs.CrashCloneCfg{})))
			wantIDs(t, s.Partition(partition0).Acquire(), "a")
		})
	}
}

// The disk is full when many changes are to become a table, or when the store is closed: the call returns.
func TestFullDiskInACall(t *testing.T) {
	for _, c := range []struct {
		name, file string
		leastIDs   int  // of a table
		closes     bool // the store, after a change
	}{
		{"apply", ".sst", 1, false}, {"close, a table", ".sst", 100, true}, {"close, the manifest", "MANIFEST", 100, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			full := fullDisk(c.file)
			o := testOptions(errorfs.Wrap(vfs.NewMem(), full))
			fatal := make(chan error, 2)
			o.OnFatal = func(err error) { fatal <- err }
			s := mustOpen(t, o)
			s.tables.leastIDs = c.leastIDs
			k, change := s.Partition(partition0).Acquire(), batchAt(1, put(newTimer("a", 1, 1), timer.Absent))
			call := func() error { return k.Apply(change) }
			if c.closes {
				must(t, k.Apply(change))
				call = s.Close
			}
			full.On()
			returned := make(chan error, 1)
			go func() { returned <- call() }()
			wantErr(t, <-fatal, syscall.ENOSPC)
			select {
			case err := <-returned:
				wantErr(t, err, syscall.ENOSPC)
			case <-time.After(10 * time.Second):
				t.Fatal("the call does not return after the fatal error")
			}
		})
	}
}

func TestManifestFailureWhileOpening(t *testing.T) {
	broken := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && strings.Contains(op.Path, "MANIFEST") {
			return syscall.EIO
		}
		return nil
	})
	mem := vfs.NewMem()
	_, err := Open(testOptions(errorfs.Wrap(mem, broken)))
	if err == nil || !strings.Contains(err.Error(), "MANIFEST") {
		t.Fatalf("opened with %v", err)
	}
}

func newEvents() (*events, chan error) {
	fatal := make(chan error, 10)
	return &events{log: slog.New(slog.DiscardHandler), onFatal: func(err error) { fatal <- err },
		dead: make(chan struct{})}, fatal
}

func TestFatal(t *testing.T) {
	e, fatal := newEvents()
	returned := make(chan struct{})
	for range 2 {
		go func() {
			e.Fatalf("MANIFEST flush failed: %v", errors.New("boom"))
			close(returned)
		}()
	}
	if err := <-fatal; !strings.Contains(err.Error(), "MANIFEST flush failed: boom") {
		t.Fatal(err)
	}
	select {
	case <-returned:
		t.Fatal("Fatalf returned")
	case <-fatal:
		t.Fatal("told twice")
	default:
	}
}

func TestBackgroundErrors(t *testing.T) {
	good := pebble.FlushInfo{}
	for _, c := range []struct {
		name  string
		do    func(l *pebble.EventListener)
		fatal bool
	}{
		{"one that may pass", func(l *pebble.EventListener) { l.BackgroundError(io.ErrUnexpectedEOF) }, false},
		{"disk full, wrapped", func(l *pebble.EventListener) { l.BackgroundError(fmt.Errorf("x: %w", syscall.ENOSPC)) },
			true},
		{"read-only", func(l *pebble.EventListener) { l.BackgroundError(syscall.EROFS) }, true},
		{"corruption", func(l *pebble.EventListener) { l.BackgroundError(pebble.ErrCorruption) }, true},
		{"many in a row", func(l *pebble.EventListener) {
			for range maxBackgroundErrors {
				l.BackgroundError(io.EOF)
			}
		}, true},
		{"many, flushes between", func(l *pebble.EventListener) {
			for range maxBackgroundErrors {
				l.BackgroundError(io.EOF)
				l.FlushEnd(good)
			}
		}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, fatal := newEvents()
			c.do(e.listener(newInputs(nil, 0)))
			synctest.Wait()
			if got := len(fatal) > 0; got != c.fatal {
				t.Errorf("%s: fatal %v", c.name, got)
			}
		})
	}
}

// A burst of short stalls, which memtables that fill up cause, is counted and not logged. A long stall is logged while
// it lasts and when it is over.
func TestOnlyLongStallsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		e, _ := newEvents()
		e.log = slog.New(slog.NewTextHandler(&out, nil))
		l := e.listener(newInputs(nil, 0))
		stall := func(d time.Duration) {
			l.WriteStallBegin(pebble.WriteStallBeginInfo{Reason: "memtable count limit reached"})
			time.Sleep(d)
			l.WriteStallEnd()
		}
		for range 20 {
			stall(50 * time.Millisecond)
		}
		if out.Len() > 0 || e.stalls.Load() != 20 || e.stalled() != time.Second {
			t.Errorf("%d stalls, %s, logged:\n%s", e.stalls.Load(), e.stalled(), &out)
		}
		stall(3 * time.Second)
		if n := strings.Count(out.String(), "\n"); n != 2 || !strings.Contains(out.String(), "store stalls writes") ||
			!strings.Contains(out.String(), "duration=3s") {
			t.Errorf("logged:\n%s", &out)
		}
	})
}
