//go:build unix

package child

import (
	"os/exec"
	"syscall"
)

const (
	Kill     = syscall.SIGKILL
	Term     = syscall.SIGTERM
	pause    = syscall.SIGSTOP
	Continue = syscall.SIGCONT
)

// ownGroup puts the command into a process group of its own, so that an interrupt at the terminal reaches this process
// first.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

// signalGroup sends sig to the group that ownGroup made.
func signalGroup(cmd *exec.Cmd, sig syscall.Signal) error {
	return syscall.Kill(-cmd.Process.Pid, sig)
}
