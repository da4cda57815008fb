package ownership

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
)

// maxRuns is how many changes of the leader epoch are remembered: requests that are not settled yet
// seldom span more than one.
const maxRuns = 16

// epochs remembers in which leader epochs the last requests were written, so that a checkpoint can
// store the epoch of its position. Offset and epoch together show whether a log was cut and has grown
// again since it was read (KIP-320).
type epochs struct {
	mu   sync.Mutex // guards runs
	runs []run      // in order
}

// run is a run of requests of the same epoch.
type run struct {
	from  int64
	epoch partlog.Epoch
}

// begin forgets all but the epoch of the last record below a position.
func (e *epochs) begin(position int64, epoch partlog.Epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs = append(e.runs[:0], run{position - 1, epoch})
}

// read notes the epochs of records, in the order of the log, and that of the last batch below next; 0 if it is unknown.
func (e *epochs) read(recs []*kgo.Record, next int64, last partlog.Epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	note := func(at int64, epoch partlog.Epoch) {
		if n := len(e.runs); n == 0 || e.runs[n-1].epoch != epoch && e.runs[n-1].from < at {
			e.runs = append(e.runs, run{at, epoch})
		}
	}
	for _, r := range recs {
		note(r.Offset, partlog.EpochOf(r.LeaderEpoch))
	}
	if next > 0 && last != 0 {
		note(next-1, last)
	}
	e.runs = append(e.runs[:0], e.runs[max(0, len(e.runs)-maxRuns):]...)
}

// below returns the epoch of the last record below a position; 0 if it is not known.
func (e *epochs) below(position int64) partlog.Epoch {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := len(e.runs) - 1; i >= 0; i-- {
		if e.runs[i].from < position {
			return e.runs[i].epoch
		}
	}
	return 0
}
