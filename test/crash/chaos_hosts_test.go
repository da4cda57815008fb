package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

// smallDisk is the size of a data directory.
const smallDisk = "64m"

// host is a place for an instance: its directory, its name, its network. mu is held by a fault that has the process,
// and guards what follows it.
type host struct {
	w     *world
	n     int
	seeds []string
	wire  *kafkatest.Wire // between the instance and its brokers; nil if there is none

	mu    sync.Mutex
	p     *rig.Process
	dir   string
	small bool   // the directory is a small disk
	old   string // a copy of the directory from before; "": there is none
}

// newHost makes a place for an instance. Some reach their brokers through a wire.
func (w *world) newHost(n int, wired bool) *host {
	h := &host{w: w, n: n, seeds: w.c.Seeds()}
	if wired {
		h.wire = kafkatest.NewWire()
		w.t.Cleanup(h.wire.Close)
		h.seeds = proxied(w.t, h.wire, w.c, n)
	}
	h.newDisk()
	return h
}

// newDisk gives the host another directory, a small disk if that is allowed here; mu is held.
func (h *host) newDisk() {
	dir := h.w.t.TempDir()
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+smallDisk, "none", dir).CombinedOutput()
	if err != nil {
		h.w.t.Logf("missing: full disks, because a small disk needs root: %v: %s", err, out)
	} else {
		h.w.t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	}
	h.dir, h.small = dir, err == nil
}

func (h *host) name() string { return fmt.Sprint("wc-", h.n) }

// start starts the instance; mu is held.
func (h *host) start() { h.p = rig.Start(h.w.t, h.arguments()...) }

func (h *host) arguments() []string {
	args := rig.Arguments(h.seeds, h.w.load.requests, h.dir, h.w.settings...)
	if h.w.static {
		args = append(args, "--instance-id", h.name())
	}
	return args
}

// runs reports whether there is an instance; mu is held.
func (h *host) runs() bool { return h.p != nil && !ended(h.p, 0) }

// ended reports whether a process has ended, or does within a time.
func ended(p *rig.Process, within time.Duration) bool {
	select {
	case <-p.Ended():
		return true
	default:
	}
	select {
	case <-p.Ended():
		return true
	case <-time.After(within):
		return false
	}
}

// end ends the instance in order, and says how; mu is held.
func (h *host) end(arg int) string {
	what := "instance stopped"
	if arg%2 == 0 {
		what = "instance drained"
		status, err := rig.Leave(context.Background(), h.p.Addr(), h.dir, "10s")
		if err != nil || status != http.StatusOK { // brokers are away
			what = "instance drained in vain, and stopped"
			h.signal(syscall.SIGTERM)
		}
	} else {
		h.signal(syscall.SIGTERM)
	}
	if !ended(h.p, stopLimit) {
		h.w.t.Errorf("%s does not stop within %s", h.name(), stopLimit)
		h.p.Kill()
	}
	return what
}

// signal sends a signal to the instance, and reports whether there is one; mu is held.
func (h *host) signal(s syscall.Signal) bool { return h.runs() && h.p.Signal(s) == nil }

// What becomes of the directory of an instance that is dead.
const (
	kept = iota
	lost
	older
	anothers
)

// redisk does that; mu is held. It says what it has done.
func (h *host) redisk(how int) string {
	switch how {
	case lost:
		h.empty()
		return "its directory is lost"
	case older:
		if h.old != "" {
			h.fill(h.old)
			return "its directory is an older copy"
		}
	case anothers:
		from := h.w.hosts[(h.n+1)%len(h.w.hosts)]
		if !from.mu.TryLock() {
			break
		}
		defer from.mu.Unlock()
		if from.old != "" {
			h.fill(from.old)
			return "its directory is an older copy of another's"
		}
	}
	h.copy()
	return "its directory is kept"
}

// copy keeps a copy of the directory.
func (h *host) copy() {
	dir, err := os.MkdirTemp(h.w.spare, "copy-")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(h.dir))
	}
	if err != nil {
		h.w.t.Errorf("copy the directory of %s: %v", h.name(), err)
		return
	}
	_ = os.RemoveAll(h.old)
	h.old = dir
}

// fill makes the directory a copy of another one.
func (h *host) fill(from string) {
	h.empty()
	if err := os.CopyFS(h.dir, os.DirFS(from)); err != nil {
		h.w.t.Errorf("fill the directory of %s: %v", h.name(), err)
	}
}

func (h *host) empty() {
	all, err := filepath.Glob(filepath.Join(h.dir, "*"))
	for _, path := range all {
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err != nil {
		h.w.t.Errorf("empty the directory of %s: %v", h.name(), err)
	}
}

// clog fills the small disk, and returns what frees it.
func (h *host) clog() (free func(), err error) {
	path := filepath.Join(h.dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err = io.Copy(f, zeros{}); !errors.Is(err, syscall.ENOSPC) {
		return nil, fmt.Errorf("fill %s: %w", path, err)
	}
	return func() { _ = os.Remove(path) }, nil
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
