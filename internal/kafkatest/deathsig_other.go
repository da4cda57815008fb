//go:build unix && !linux

package kafkatest

import "syscall"

// dieWithParent does nothing: only Linux has such a signal. A killed test
// process leaves its brokers behind here.
func dieWithParent(*syscall.SysProcAttr) {}
