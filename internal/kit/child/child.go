// Package child runs child processes, each in its own process group, so that an interrupt at the terminal reaches
// this process first. On Linux the kernel kills them when this process ends, for whatever reason.
//
//	p, err := child.Start(exec.Command("waterclock", "serve"))
//	...
//	err = p.End(syscall.SIGTERM, 10*time.Second)
package child

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a started program. Its methods may be called from several goroutines.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone
	err    error         // how it ended; set before exited is closed
}

// ErrEnded is returned when a process that has ended is signalled.
var ErrEnded = errors.New("process has ended")

// Start starts cmd. The caller must not start, wait for or signal cmd itself.
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

// supervise starts the process, reports whether that worked, and waits for its end. It stays on one thread
// throughout, because the kernel signals a parent's death when the thread that started the child ends, not the parent
// process.
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

// Pid returns the ID of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Exited is closed when the process is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits for the end of the process and returns its error, as exec.Cmd does.
func (p *Process) Wait() error {
	<-p.exited
	return p.err
}

// Alive reports whether the process runs. A nil process does not.
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

// Signal sends sig to the process and to its children.
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
		return fmt.Errorf("process %d did not end within %s", p.Pid(), limit)
	}
}

// Pause stops the process and returns once all its threads have stopped, or with an error. Signal with [Continue]
// resumes it.
func (p *Process) Pause() error {
	if err := p.Signal(pause); err != nil {
		return err
	}
	if err := awaitPaused(p.cmd); err != nil {
		return fmt.Errorf("pause process %d: %w", p.Pid(), err)
	}
	return nil
}
