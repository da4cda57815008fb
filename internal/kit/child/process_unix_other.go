//go:build unix && !linux

package child

import (
	"os/exec"
	"syscall"
)

// dieWithParent does nothing: only Linux has such a signal. A killed parent leaves its children behind here.
func dieWithParent(*syscall.SysProcAttr) {}

// awaitPaused does nothing: the pause may begin milliseconds late here.
func awaitPaused(*exec.Cmd) error { return nil }
