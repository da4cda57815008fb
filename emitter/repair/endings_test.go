package repair

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Kafka 4.0.0 increases the epoch twice at a fencing abort (KAFKA-19367), just like a commit followed by an abort. So
// its coordinator's answer proves nothing.
func TestAnEpochThatMovedTwiceSaysNothing(t *testing.T) {
	at := Producer{1, 7}
	for _, tc := range []struct {
		epoch int16
		state string
		want  Ending
	}{
		{8, "CompleteAbort", EndingAbort}, {8, "CompleteCommit", EndingCommit}, {8, "PrepareAbort", EndingAbort},
		{9, "CompleteAbort", EndingUnknown}, {9, "CompleteCommit", EndingUnknown}, {7, "CompleteCommit", EndingUnknown},
		{8, "Empty", EndingUnknown},
	} {
		txn := kadm.DescribedTransaction{ProducerID: at.ID, ProducerEpoch: tc.epoch, State: tc.state}
		if got := EndingOf(txn, at); got != tc.want {
			t.Errorf("epoch %d, %s: %s, want %s", tc.epoch, tc.state, got, tc.want)
		}
	}
}
