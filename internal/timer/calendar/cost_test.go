package calendar

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// BenchmarkNext compares what L, W and # cost with a plain expression that comes as often. It takes the fastest of many
// short runs in turn, so that other load on the machine does not count.
func BenchmarkNext(b *testing.B) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		b.Fatal(err)
	}
	const run, from = 240, 1_800_000_000 // occurrences, Unix seconds
	for _, c := range [][2]string{
		{"0 9 28 * *", "0 9 L * *"}, {"0 9 28 * *", "0 9 L-3 * *"}, {"0 9 15 * *", "0 9 15W * *"},
		{"0 9 28 * *", "0 9 LW * *"}, {"0 9 10 * *", "0 9 * * fri#2"}, {"0 9 28 * *", "0 9 * * friL"},
		{"0 9 3,10,17 * *", "0 9 * * mon#1,tue#2,wed#3"},
	} {
		var s [2]*Schedule
		for i, text := range c {
			e, err := Parse(text)
			if err != nil {
				b.Fatal(err)
			}
			s[i] = e.In(berlin)
		}
		b.Run(fmt.Sprintf("%q beside %q", c[1], c[0]), func(b *testing.B) {
			fastest := [2]time.Duration{math.MaxInt64, math.MaxInt64}
			for b.Loop() {
				for i := range s {
					begin, at := time.Now(), int64(from)
					for range run {
						at, _ = s[i].Next(at)
					}
					fastest[i] = min(fastest[i], time.Since(begin))
				}
			}
			b.ReportMetric(float64(fastest[0])/run, "ns/plain")
			b.ReportMetric(float64(fastest[1])/run, "ns/relative")
			b.ReportMetric(float64(fastest[1])/float64(fastest[0]), "ratio")
		})
	}
}
