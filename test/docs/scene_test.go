package docs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	alerts "github.com/waterclock/waterclock/deploy/prometheus"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

// scene is where something happens: a machine with an instance, an operator there, and what users have.
type scene struct {
	*rig.Setup
	m *machine
	o *operator

	before map[string]string // what was scraped before the incident, if that is recorded
}

func newScene(t *testing.T, c *kafkatest.Cluster) *scene {
	t.Helper()
	s := &scene{Setup: rig.NewSetup(t, c, partitions, 1)}
	s.m = newMachine(t, c.Seeds(), s.Requests)
	s.o = newOperator(t, s.m)
	return s
}

// serve starts the instance.
func (s *scene) serve() {
	s.Helper()
	s.m.start()
	s.m.web().Ready(partitions, patience)
	s.healthy()
}

// schedule sends n timers, which spread over all partitions.
func (s *scene) schedule(prefix string, n int, target string, due time.Time) {
	s.Helper()
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = rig.Timer(s.Requests, target, fmt.Sprint(prefix, i), due)
	}
	s.Send(recs...)
	on := map[int32]bool{}
	for _, r := range recs {
		on[r.Partition] = true
	}
	if len(on) != partitions {
		s.Fatalf("%d timers are on partitions %v only", n, on)
	}
}

// exactly checks that each of n timers was emitted to the target once, and nothing else, and that nothing is left.
func (s *scene) exactly(n int) {
	s.Helper()
	exactly(s.T, s.Out, n)
	s.m.web().Balanced(0)
}

func exactly(t *testing.T, out *kafkatest.Collector, n int) {
	t.Helper()
	out.WaitFor(n, patience)
	out.Quiet(time.Second)
	rig.Exactly(t, out.Records(), n)
}

// envRecord names a directory. Incidents leave there what Prometheus would have scraped before and during them, and
// deploy/check has the alerts judge it:
//
//	WATERCLOCK_RECORD=$PWD/deploy/check/testdata WATERCLOCK_SLOW_TESTS=1 go -C test test ./docs
//
// A line is a series and its two values; _ is none. Series that are 0 all the time are left out.
const envRecord = "WATERCLOCK_RECORD"

// alerting are the metrics that alerts ask for.
var alerting = func() map[string]bool {
	names := map[string]bool{"up": true}
	for _, a := range alerts.All() {
		for _, name := range regexp.MustCompile(`waterclock_[a-z0-9_]+`).FindAllString(a.Expr, -1) {
			names[name] = true
		}
	}
	return names
}()

// scrape returns the series that alerts ask for, with their values.
func (s *scene) scrape() map[string]string {
	s.Helper()
	series := map[string]string{"up": "0"}
	if status, _ := s.m.web().Healthz(); status == 0 {
		return series
	}
	series["up"] = "1"
	for line := range strings.Lines(s.m.web().Metrics()) {
		at := strings.LastIndexByte(line, ' ')
		name, _, _ := strings.Cut(line[:max(at, 0)], "{")
		if alerting[name] {
			series[strings.ReplaceAll(line[:at], s.Setup.Requests, "timers")] = strings.TrimSpace(line[at:])
		}
	}
	return series
}

// healthy notes what was scraped before the incident.
func (s *scene) healthy() {
	s.Helper()
	if os.Getenv(envRecord) != "" {
		s.before = s.scrape()
	}
}

// record leaves what was scraped before the incident, and what is scraped now.
func (s *scene) record(incident string) {
	s.Helper()
	dir := os.Getenv(envRecord)
	if dir == "" {
		return
	}
	now := s.scrape()
	all := maps.Clone(s.before)
	maps.Copy(all, now)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := func(of map[string]string) string {
			if v, ok := of[name]; ok {
				return v
			}
			return "_"
		}
		if was, is := value(s.before), value(now); was != "0" || is != "0" {
			fmt.Fprintln(&b, name, was, is)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, incident+".txt"), []byte(b.String()), 0o644); err != nil {
		s.Error(err)
	}
}
