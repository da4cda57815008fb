//go:build !unix

package child

import (
	"errors"
	"os/exec"
	"syscall"
)

// These numbers mean nothing to this system: they only tell signalGroup what to do.
const (
	Kill     = syscall.Signal(9)
	Term     = syscall.Signal(15)
	pause    = syscall.Signal(19)
	Continue = syscall.Signal(18)
)

func ownGroup(*exec.Cmd) {}

// signalGroup can only kill here: pausing is unsupported.
func signalGroup(cmd *exec.Cmd, sig syscall.Signal) error {
	if sig == pause || sig == Continue {
		return errors.ErrUnsupported
	}
	return cmd.Process.Kill()
}

func awaitPaused(*exec.Cmd) error { return nil }
