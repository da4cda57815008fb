package rig

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/bench"
)

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

// LiveHeap returns how many bytes a process keeps in its Go heap, garbage not
// counted. addr is that of its --pprof.
func LiveHeap(t testing.TB, addr string) (live int64) {
	t.Helper()
	for range 2 { // pools are emptied by the second collection
		live = heapAlloc(t, "http://"+addr+"/debug/pprof/heap?gc=1&debug=1")
	}
	return live
}

func heapAlloc(t testing.TB, url string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatalf("rig: %v", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("rig: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("rig: read the heap's profile: %v", err)
	}
	_, rest, _ := strings.Cut(string(body), "# HeapAlloc = ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		t.Fatalf("rig: the heap's profile says nothing of HeapAlloc: %v", err)
	}
	return n
}
