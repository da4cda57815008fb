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

// Limits of the files that are read again while an instance runs.
const (
	lookEvery    = time.Second
	maxFileBytes = 4 << 20
)

// watched is the current content of a few files that belong together. [watched.get] reads them again
// if the last look is more than lookEvery ago. So there is no goroutine, and a change holds from the
// first call after it.
//
// They are compared by content. Times and sizes miss what matters most: a new token has the length of the old one, and
// tools that copy keep the time. A Kubernetes secret is a symlink to a directory that is swapped; reading through the
// name sees that.
//
// If files cannot be read or parsed, that is logged once for each problem, and their last good content stays in effect.
type watched[T any] struct {
	what    string // for the log
	paths   []string
	secrets []string // those of paths that other users of the machine should not be able to read
	parse   func(texts [][]byte) (T, error)
	log     *slog.Logger
	start   time.Time    // looks are timed by the monotonic clock
	next    atomic.Int64 // when the next look is due, as nanoseconds since start
	value   atomic.Pointer[T]

	mu   sync.Mutex        // guards the fields below; held while looking
	seen [sha256.Size]byte // of the content that was read last
	bad  error             // what is wrong with that content; nil if it is valid
	said string            // the last problem that was logged; "" if there is none
}

// watch reads the files for the first time, and returns an error if that fails.
func watch[T any](what string, log *slog.Logger, parse func([][]byte) (T, error), secrets []string,
	others ...string) (*watched[T], error) {
	w := &watched[T]{what: what, paths: slices.Concat(secrets, others), secrets: secrets, parse: parse, log: log,
		start: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.look(); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	w.warnReadable()
	w.next.Store(int64(lookEvery))
	return w, nil
}

// get returns the content of the files. While one caller looks, others get the last content.
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
		w.log.Error("a file cannot be read again; its last good content stays in effect", "what", w.what, "files",
			w.paths, "err", err)
	case err == nil:
		w.said = ""
	}
	if changed {
		w.log.Info("file reloaded", "what", w.what, "files", w.paths)
		w.warnReadable()
	}
}

// look reads the files and uses their content if it has changed. It does not parse the same content twice, because
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

// warnReadable warns of secrets that every user of the machine may read. It rejects none,
// because Kubernetes mounts secrets like that by default.
func (w *watched[T]) warnReadable() {
	for _, path := range w.secrets {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o007 != 0 {
			w.log.Warn("every user of the machine may read a file of secrets; change that with chmod o-rwx, or "+
				"defaultMode of the volume",
				"what", w.what, "file", path, "mode", info.Mode().Perm().String())
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
