package child

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pauseTimeout = 10 * time.Second
	pausePoll    = time.Millisecond
)

// dieWithParent makes the kernel kill the process when the *thread* that started it ends. Process.supervise keeps
// that thread alive.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// awaitPaused returns when every thread of a process has stopped. SIGSTOP only asks for that: one thread has to be
// scheduled to pass it on, and on a busy machine the others go on serving for milliseconds.
func awaitPaused(cmd *exec.Cmd) error {
	limit := time.NewTimer(pauseTimeout)
	defer limit.Stop()
	tick := time.NewTicker(pausePoll)
	defer tick.Stop()
	for {
		var info unix.Siginfo // WNOWAIT leaves the state for the next caller
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG, nil)
		switch {
		case err == nil && info.Signo != 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for the pause: %w", err)
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return fmt.Errorf("not paused after %v", pauseTimeout)
		}
	}
}
