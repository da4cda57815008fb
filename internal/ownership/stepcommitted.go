package ownership

import (
	"cmp"
	"context"
	"fmt"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/wire"
)

// outcome finds out how a step ended if its marker is missing in the changelog. The step's producer wrote it from
// the given offset on. Readers wait where a marker is missing. So either the owner went on, and the log shows that
// behind the step, or nothing was committed after it. In the second case the name of the last step in the committed
// offset decides. It is known once the acquisition has fetched that offset.
func (a *acquirer) outcome(ctx context.Context, producerID, from int64) (repair.Ending, error) {
	owned, note := a.o.changelog(), a.found.Load()
	if note == nil {
		return repair.EndingUnknown, fmt.Errorf("the changelog %v lacks the marker of producer %d at offset %d, and "+
			"the committed offset is not known yet",
			owned, producerID, from)
	}
	_, _, end, err := partlog.Bounds(ctx, a.o.Client, owned)
	if err != nil {
		return repair.EndingUnknown, err
	}
	r := partlog.NewReader(a.o.Client, owned, from)
	r.SetCompacted(true)
	r.SetUncommitted()
	unmarked, after := "", false
	for r.Position() < end {
		page, err := r.Next(ctx, fetchWait)
		if err != nil {
			return repair.EndingUnknown, err
		}
		for _, rec := range page.Records {
			step, err := stepOf(rec.Key, rec.Value)
			switch {
			case err != nil:
				return repair.EndingUnknown, err
			case step == "":
			case rec.ProducerID == producerID:
				unmarked = cmp.Or(unmarked, step)
			case unmarked != "" && (step == note.Step || step == note.Last):
				after = true
			}
		}
	}
	switch {
	case unmarked == "":
		return repair.EndingAbort, nil // a step without its checkpoint was never committed
	case note.Step == unmarked || note.Last == unmarked:
		return repair.EndingCommit, nil
	case after:
		return repair.EndingUnknown, fmt.Errorf("the changelog %v lacks the marker of step %s, and later ones are "+
			"committed: whether that one was is not known",
			owned, unmarked)
	}
	return repair.EndingAbort, nil
}

// stepOf returns the name of the step that wrote a checkpoint or a claim; "" for other records.
func stepOf(key, value []byte) (string, error) {
	kind, _, err := wire.ParseKey(key)
	switch {
	case err != nil:
		return "", fmt.Errorf("read the changelog: %w", err)
	case kind == wire.KindCheckpoint:
		c, err := wire.DecodeCheckpoint(value)
		return c.Step, err
	case kind == wire.KindClaim:
		c, err := wire.DecodeClaim(value)
		return c.Step, err
	}
	return "", nil
}
