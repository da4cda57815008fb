package fixeddelay

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/partition"
)

// A timestamp may be so far ahead of the brokers' clock, whatever this machine's says.
func TestJudgeTime(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		at   time.Time
		want waterclock.Reason
	}{
		"now":        {now, ""},
		"the limit":  {now.Add(maxAhead), ""},
		"beyond":     {now.Add(maxAhead + time.Millisecond), waterclock.ReasonBeyondHorizon},
		"far beyond": {time.UnixMilli(1 << 60), waterclock.ReasonBeyondHorizon},
		"long ago":   {time.UnixMilli(0), ""},
		"none":       {time.UnixMilli(-1), waterclock.ReasonNoTimestamp},
	} {
		for _, ahead := range []time.Duration{0, 5 * time.Hour, -5 * time.Hour} {
			p := &Partition{o: Options{Metrics: partition.NewMetrics(prometheus.NewRegistry())}}
			p.o.Metrics.Clocks().Jumped(ahead)
			refusal := p.judgeTime(tc.at, now.Add(ahead))
			if tc.want == "" && refusal != nil || tc.want != "" && (refusal == nil || refusal.Reason != tc.want) {
				t.Errorf("%s, clock ahead by %s: %+v", name, ahead, refusal)
			}
		}
	}
}
