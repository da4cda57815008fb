//go:build unix

package kafkatest

import (
	"os/exec"
	"syscall"
)

const (
	sigKill  = syscall.SIGKILL
	sigTerm  = syscall.SIGTERM
	sigPause = syscall.SIGSTOP
	sigGoOn  = syscall.SIGCONT
)

// ownGroup puts the command into a process group of its own, so that an
// interrupt at the terminal reaches the test first.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

// signalGroup sends sig to the group that ownGroup made.
func signalGroup(cmd *exec.Cmd, sig syscall.Signal) error {
	return syscall.Kill(-cmd.Process.Pid, sig)
}
