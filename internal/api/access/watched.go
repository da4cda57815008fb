package access

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of the files that are reloaded while an instance runs.
const (
	lookEvery    = time.Second
	maxFileBytes = 4 << 20
)

// watched is the current content of a few files that belong together. [watched.get] rereads them if the last check is
// more than lookEvery ago. So there is no goroutine, and a change applies from the first call after it.
//
// They are compared by content. Times and sizes miss the most important changes: a new token is as long as the old
// one, and tools that copy keep the time. A Kubernetes secret is a symlink to a directory that is swapped; reading
// through the name sees that.
//
// If files cannot be read or parsed, that is logged once for each problem, and their last good content stays in
// effect.
type watched[T any] struct {
	content string // names it in the log
	paths   []string
	secrets []string // those of paths that other users of the machine should not be able to read
	parse   func(texts [][]byte) (T, error)
	log     *slog.Logger
	start   time.Time    // checks are timed by the monotonic clock
	next    atomic.Int64 // when the next check is due, as nanoseconds since start
	value   atomic.Pointer[T]

	mu   sync.Mutex        // guards the fields below; held during a check
	seen [sha256.Size]byte // of the content that was read last
	bad  error             // the problem of that content; nil if it is valid
	said string            // the last problem that was logged; "" if there is none
}

// watch reads the files for the first time, and returns an error if that fails.
func watch[T any](content string, log *slog.Logger, parse func([][]byte) (T, error), secrets []string,
	others ...string) (*watched[T], error) {
	w := &watched[T]{content: content, paths: slices.Concat(secrets, others), secrets: secrets, parse: parse, log: log,
		start: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.look(); err != nil {
		return nil, fmt.Errorf("read %s: %w", content, err)
	}
	w.warnReadable()
	w.next.Store(int64(lookEvery))
	return w, nil
}

// get returns the content of the files. While one caller checks, others get the last content.
func (w *watched[T]) get() T {
	now := int64(time.Since(w.start))
	if now >= w.next.Load() && w.mu.TryLock() {
		defer w.mu.Unlock()
		w.again()
		w.next.Store(int64(time.Since(w.start) + lookEvery))
	}
	return *w.value.Load()
}

func (w *watched[T]) again() {
	changed, err := w.look()
	switch {
	case err != nil && err.Error() != w.said:
		w.said = err.Error()
		w.log.Error("cannot reload file; its last good content stays in effect", "content", w.content, "files",
			w.paths, "err", err)
	case err == nil:
		w.said = ""
	}
	if changed {
		w.log.Info("file reloaded", "content", w.content, "files", w.paths)
		w.warnReadable()
	}
}

// look rereads the files and uses their content if it has changed. It does not parse the same content twice, because
// thousands of callers take a second.
func (w *watched[T]) look() (changed bool, err error) {
	var texts [][]byte
	var sums []byte
	for _, path := range w.paths {
		text, err := readFile(path)
		if err != nil {
			return false, err
		}
		each := sha256.Sum256(text)
		texts, sums = append(texts, text), append(sums, each[:]...)
	}
	sum := sha256.Sum256(sums)
	if sum == w.seen {
		return false, w.bad
	}
	value, err := w.parse(texts)
	w.seen, w.bad = sum, err
	if err != nil {
		return false, err
	}
	w.value.Store(&value)
	return true, nil
}

// warnReadable warns of secrets that every user of the machine may read. It rejects none, because Kubernetes mounts
// secrets like that by default.
func (w *watched[T]) warnReadable() {
	for _, path := range w.secrets {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o007 != 0 {
			w.log.Warn("file of secrets is readable by every user of the machine; use chmod o-rwx, or "+
				"defaultMode of the volume",
				"content", w.content, "file", path, "mode", info.Mode().Perm().String())
		}
	}
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFileBytes)
	}
	return text, nil
}
