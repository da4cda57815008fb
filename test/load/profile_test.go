package load

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/test/rig"
)

var profileFlag = flag.String("profile", "",
	"directory for heap profiles of the cells' processes, taken whenever their memory has grown")

const (
	// profileEvery is how often a process is looked at, and profileStep how much it has grown before it is looked into.
	profileEvery = 100 * time.Millisecond
	profileStep  = 8 * mib
)

// profile writes what the heap of a process holds at its peaks, until the process ends.
func profile(t *testing.T, p *rig.Process, addr string) {
	name := filepath.Join(*profileFlag, strings.ReplaceAll(t.Name(), "/", "_"))
	most := int64(200 * mib)
	for {
		select {
		case <-p.Ended():
			return
		case <-time.After(profileEvery):
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Pid()))
		if err != nil {
			return
		}
		var size, resident int64
		_, _ = fmt.Sscan(string(status), &size, &resident)
		resident *= int64(os.Getpagesize())
		if resident < most+profileStep {
			continue
		}
		most = resident
		for _, file := range []string{"status", "smaps"} {
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.Pid(), file)); err == nil {
				_ = os.WriteFile(fmt.Sprintf("%s-%d-%s", name, resident/mib, file), text, 0o600)
			}
		}
		_ = os.WriteFile(fmt.Sprintf("%s-%d-metrics", name, resident/mib), []byte(p.Metrics()), 0o600)
		for _, kind := range []string{"heap?debug=1", "heap", "goroutine?debug=1"} {
			resp, err := http.Get("http://" + addr + "/debug/pprof/" + kind)
			if err != nil {
				continue
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			_ = os.WriteFile(fmt.Sprintf("%s-%d-%s", name, resident/mib, strings.ReplaceAll(kind, "?", "-")),
				body, 0o600)
		}
	}
}
