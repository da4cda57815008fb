package rig

import (
	"syscall"

	"github.com/prometheus/procfs"

	"github.com/waterclock/waterclock/internal/kit/memory"
)

// Queues returns the shares of the minimum memory, but with queues of this many bytes.
func Queues(bytes int64) *memory.Shares {
	s := memory.Divide(memory.Minimum)
	s.Requests, s.Firings = bytes, bytes
	return &s
}

// Memory reads the process's resident size and its peak since the start (VmRSS and VmHWM), in bytes. It
// works only on Linux.
func (p *Process) Memory() (now, peak int64) {
	p.t.Helper()
	proc, err := procfs.NewProc(p.Pid())
	if err != nil {
		p.t.Fatalf("rig: memory of the process: %v", err)
	}
	status, err := proc.NewStatus()
	if err != nil || status.VmRSS == 0 || status.VmHWM == 0 {
		p.t.Fatalf("rig: memory of the process: %+v, %v", status, err)
	}
	return int64(status.VmRSS), int64(status.VmHWM)
}

// Peak returns the largest resident size of a process that has ended, in bytes. It works only on Linux,
// which counts in KiB.
func (p *Process) Peak() int64 {
	p.t.Helper()
	usage, ok := p.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		p.t.Fatalf("rig: no usage of the process")
	}
	return usage.Maxrss << 10
}
