// Package operation tests what happens to an instance whose surroundings change:
// topics, disk, store, clock.
package operation

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// timers are n requests, due within spread from at on.
func timers(requests, target, prefix string, n int, at time.Time, spread time.Duration, value []byte) []*kgo.Record {
	recs := make([]*kgo.Record, n)
	for i := range recs {
		due := at.Add(spread * time.Duration(i) / time.Duration(n))
		recs[i] = rig.Timer(requests, target, fmt.Sprint(prefix, i), due)
		recs[i].Value = value
	}
	return recs
}
