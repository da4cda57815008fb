package ownership

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/partlog"
)

// maxRuns is how many changes of the leader epoch are remembered: what is not settled yet
// seldom spans one.
const maxRuns = 16

// epochs know in which leader epochs the requests were written that were read last, so that a
// checkpoint can say it of its position: by offset and epoch a log that was cut, and has grown
// again, is told from the one that was read (KIP-320).
type epochs struct {
	mu   sync.Mutex // guards runs
	runs []run      // in order
}

// run begins with a record at an offset.
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

// read takes in records in their order.
func (e *epochs) read(recs []*kgo.Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range recs {
		epoch := partlog.EpochOf(r.LeaderEpoch)
		if n := len(e.runs); n == 0 || e.runs[n-1].epoch != epoch {
			e.runs = append(e.runs, run{r.Offset, epoch})
		}
	}
	e.runs = append(e.runs[:0], e.runs[max(0, len(e.runs)-maxRuns):]...)
}

// below is the epoch of the last record below a position, none if it is not known.
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

// Read takes in the requests that were read, in their order.
func (l *Life) Read(recs []*kgo.Record) { l.epochs.read(recs) }
