package rig

import (
	"github.com/prometheus/procfs"

	"github.com/waterclock/waterclock/internal/memory"
)

// Queues returns the shares of the least memory, with queues of that many bytes instead.
func Queues(bytes int64) *memory.Shares {
	s := memory.Divide(memory.Minimum)
	s.Requests, s.Firings = bytes, bytes
	return &s
}

// Memory reads the process's resident size and its peak since the start (VmRSS
// and VmHWM), in bytes. Only Linux tells.
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
