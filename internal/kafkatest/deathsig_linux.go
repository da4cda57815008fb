package kafkatest

import "syscall"

// dieWithParent has the kernel kill the process when the *thread* that started
// it ends; see broker.supervise, which keeps that thread.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
