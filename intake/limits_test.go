package intake

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
)

// Of a record with very many headers not all are built. It is rejected for their number, also if the limit counts none
// of them, because a header that matters may be among those that were not examined.
func TestARecordOfVeryManyHeadersIsRejected(t *testing.T) {
	rig := newReadRig(t, 1)
	for _, n := range []int{partlog.MaxHeaders, partlog.MaxHeaders + 1} {
		rec := &kgo.Record{Topic: readTopic, Key: []byte("id"), Headers: make([]kgo.RecordHeader, n)}
		for i := range rec.Headers {
			rec.Headers[i].Key = waterclock.OwnPrefix + "anything"
		}
		rec.Headers[n-1].Key, rec.Headers[n-1].Value = waterclock.HeaderCancel, []byte("true")
		must(t, rig.cl.ProduceSync(t.Context(), rec).FirstErr())
	}
	rig.run()
	s := new(sink)
	rig.r.Add(readTopic, 0, readPerPart, s)
	rules := &Rules{Topic: readTopic, Partitions: 1, Allow: func(string) bool { return true }}
	s.has(t, 2)
	if _, _, refusal := rules.Validate(s.records[0], 0); refusal != nil {
		t.Errorf("%d headers: %+v", partlog.MaxHeaders, refusal)
	}
	many := s.records[1]
	tooMany := string(waterclock.ReasonTooManyHeaders)
	if _, _, refusal := rules.Validate(many, 0); refusal == nil || refusal.Reason != tooMany {
		t.Errorf("%d headers: %+v", partlog.MaxHeaders+1, refusal)
	}
	if _, refusal := rules.ValidateDelayed(many); refusal == nil || refusal.Reason != tooMany {
		t.Errorf("%d headers in a fixed-delay topic: %+v", partlog.MaxHeaders+1, refusal)
	}
}
