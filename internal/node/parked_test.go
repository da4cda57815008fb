package node

import (
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// At the limit every target has a metric of its own, one beyond there is one for the rest.
func TestParkedTargetsShown(t *testing.T) {
	for n, want := range map[int]int{0: 0, maxParkedShown: maxParkedShown, maxParkedShown + 1: maxParkedShown + 1,
		5000: maxParkedShown + 1} {
		by := make(map[[3]string]int64)
		for i := range n {
			by[[3]string{"requests", "target", strconv.Itoa(i)}] = int64(i + 1)
		}
		ch := make(chan prometheus.Metric, n+1)
		showParked(ch, by)
		if len(ch) != want {
			t.Errorf("%d targets: %d metrics, want %d", n, len(ch), want)
		}
	}
}
