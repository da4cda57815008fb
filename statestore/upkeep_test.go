package statestore

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// small is a file system with little room.
type small struct {
	vfs.FS
	free atomic.Uint64
}

func (s *small) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: s.free.Load(), TotalBytes: 1 << 40}, nil
}

// lockedBuffer is a log that a test reads while it is written. mu guards text.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// The store warns before the disk is full, and repeats the warning now and then. The free space is
// a metric.
func TestDiskThatIsNearlyFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		fs := &small{FS: vfs.NewMem()}
		fs.free.Store(1 << 40)
		s, err := Open(Options{Dir: "d", FS: fs, FlushInterval: time.Second,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		must(t, err)
		defer s.Close()
		said := func() int { return strings.Count(log.String(), "nearly full") }
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		if wait(time.Hour); said() != 0 {
			t.Errorf("a disk with room: %s", log.String())
		}
		fs.free.Store(100 << 20)
		if wait(5 * time.Second); said() != 1 || !strings.Contains(log.String(), "free_bytes=104857600") {
			t.Errorf("a disk without: %s", log.String())
		}
		if wait(time.Hour); said() < 5 || said() > 7 {
			t.Errorf("said %d times in an hour", said())
		}
		if got := gathered(t, s)["waterclock_store_free_bytes"]; got != 100<<20 {
			t.Errorf("free bytes %v", got)
		}
	})
}
