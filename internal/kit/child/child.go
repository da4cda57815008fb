// Package child runs programs beside this process: each in a process group of its own, so that an interrupt at the
// terminal reaches this process first, and, on Linux, killed by the kernel when this process ends, however it does.
package child

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a program that was started. Its methods may be called from several goroutines.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone
	err    error         // how it ended; set before exited is closed
}

// ErrEnded is what a signal to a process that has ended gives.
var ErrEnded = errors.New("process has ended")

// Start starts cmd, which nobody else may start, wait for or signal.
func Start(cmd *exec.Cmd) (*Process, error) {
	ownGroup(cmd)
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go p.supervise(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// supervise starts the process, waits for its end and tells both. It stays on one thread from start to end, because the
// kernel's signal at the parent's death means the thread that started the process, not the parent process.
func (p *Process) supervise(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.exited)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

// Pid is the ID of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Exited is closed when the process is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits for the end of the process and says how it was, as exec.Cmd does.
func (p *Process) Wait() error {
	<-p.exited
	return p.err
}

// Alive tells whether the process runs. A nil process does not.
func (p *Process) Alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Signal sends sig to the process and those that it started.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Alive() {
		return ErrEnded
	}
	return signalGroup(p.cmd, sig)
}

// End sends sig and waits until the process is gone. It fails if that takes longer than limit.
func (p *Process) End(sig syscall.Signal, limit time.Duration) error {
	if err := p.Signal(sig); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("process %d has not ended within %s", p.Pid(), limit)
	}
}

// Pause stops the process where it stands, and returns when every thread of it does, or with an error. Signal with
// [Continue] lets it go on.
func (p *Process) Pause() error {
	if err := p.Signal(pause); err != nil {
		return err
	}
	if err := awaitPaused(p.cmd); err != nil {
		return fmt.Errorf("pause process %d: %w", p.Pid(), err)
	}
	return nil
}
