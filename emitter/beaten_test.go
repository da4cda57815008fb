package emitter

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The coordinator moves, without a connection breaking, while a commit is sent; the same
// commit, sent again by who finds out what became of it, gets there before kgo's next
// attempt, and its answer waits for a dead broker for longer than anybody waits for it.
// kgo then hears, until the last marker is written, that there is one under way. The
// coordinator says, over the client's own connection, that it is decided.
func TestACommitIsResolvedThatAnotherHasBeaten(t *testing.T) {
	t.Parallel()
	c, l := fakeLane(t)
	l.o.CommitTimeout = 100 * time.Millisecond
	admin, err := kgo.NewClient(append(l.o.Client, kgo.RequestTimeoutOverhead(RequestTimeout))...) // as the service has it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	l.o.Admin = admin
	var ends atomic.Int32
	var last atomic.Pointer[kmsg.EndTxnRequest]
	c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.EndTxnResponse)
		switch last.Store(r.(*kmsg.EndTxnRequest)); ends.Add(1) {
		case 1:
			resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		case 2:
			return nil, nil, true // no answer
		default:
			resp.ErrorCode = kerr.ConcurrentTransactions.Code
		}
		return resp, nil, true
	})
	answerDescribe(c, "PrepareCommit", func() producer { return producer{last.Load().ProducerID, last.Load().ProducerEpoch + 1} })
	wantResolved(t, l, 4*answerTimeout)
}
