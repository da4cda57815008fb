//go:build !unix

package kafkatest

import (
	"errors"
	"os/exec"
	"syscall"
)

// Numbers without a meaning to this system: they tell signalGroup what is meant.
const (
	sigKill  = syscall.Signal(9)
	sigTerm  = syscall.Signal(15)
	sigPause = syscall.Signal(19)
	sigGoOn  = syscall.Signal(18)
)

func ownGroup(*exec.Cmd) {}

// signalGroup can only kill here: pausing is unsupported.
func signalGroup(cmd *exec.Cmd, sig syscall.Signal) error {
	if sig == sigPause || sig == sigGoOn {
		return errors.ErrUnsupported
	}
	return cmd.Process.Kill()
}

func awaitPaused(*exec.Cmd) error { return nil }
