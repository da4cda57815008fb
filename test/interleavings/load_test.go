package interleavings

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/test/rig"
)

// load is a steady stream of timers.
type load struct{ *rig.Stream }

// load begins to send perSecond timers a second, due that much later each.
func (se *setup) load(perSecond int, ahead time.Duration) load {
	return load{rig.StartStream(se, se.Client, perSecond, func(n int) *kgo.Record {
		return se.timer(fmt.Sprint("load-", n), "1", time.Now().Add(ahead))
	})}
}

// end stops the stream and adds what it sent to want.
func (l load) end(want map[string][]string) {
	for i := range l.Stop() {
		values(want, fmt.Sprint("load-", i), "1")
	}
}
