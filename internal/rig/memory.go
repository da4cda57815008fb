package rig

import (
	"fmt"
	"os"

	"github.com/waterclock/waterclock/bench"
	"github.com/waterclock/waterclock/internal/memory"
)

// Queues are the shares of the least memory, but for queues of that many bytes.
func Queues(bytes int64) *memory.Shares {
	s := memory.Divide(memory.Minimum)
	s.Requests, s.Firings = bytes, bytes
	return &s
}

// Memory reads the process's resident size and its peak since the start (VmRSS
// and VmHWM), in bytes. Only Linux tells.
func (p *Process) Memory() (now, peak int64) {
	p.t.Helper()
	path := fmt.Sprintf("/proc/%d/status", p.Pid())
	b, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatalf("rig: memory of the process: %v", err)
	}
	now, peak = bench.ParseStatus(b)
	if now == 0 || peak == 0 {
		p.t.Fatalf("rig: %s has no VmRSS or no VmHWM", path)
	}
	return now, peak
}
