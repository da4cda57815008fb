package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partlog"
)

const (
	// gatePoll is how often the gate looks how far intake is.
	gatePoll = 5 * time.Millisecond
	// gateQuiet is for how long intake must have shown nothing new before the gate
	// looks at the log itself. It doubles, up to gateQuietMax, while that shows
	// requests, which are on their way through intake.
	gateQuiet, gateQuietMax = 50 * time.Millisecond, time.Second
	// gateBytes is how much one look fetches.
	gateBytes = 64 << 10
)

// gate waits until every request up to stable is delivered, and then has timers
// fire.
//
// Where no poll shows anything (markers, aborted batches) a raw fetch tells how
// far there is nothing. It goes over intake's connections: on those of the other
// client replays and read-backs would stand behind it.
func (p *Partition) gate(ctx context.Context, stable int64) {
	look := partlog.NewReader(p.o.Reader.Client(), p.Requests(), p.delivered.Load())
	look.SetMaxBytes(gateBytes)
	unpacker := p.o.Reader.Unpacker()
	look.SetDecompressor(unpacker)
	poll := time.NewTicker(gatePoll)
	defer poll.Stop()
	quiet, moved := gateQuiet, time.Now()
	for look.Position() < stable {
		select {
		case <-ctx.Done():
			return
		case now := <-poll.C:
			if d := p.delivered.Load(); d > look.Position() {
				look.SetPosition(d)
				quiet, moved = gateQuiet, now
				continue
			}
			if now.Sub(moved) < quiet || p.isPaused() {
				continue
			}
		}
		from := look.Position()
		unpacker.Reset()
		page, err := look.Next(ctx, 0)
		tooLarge := errors.Is(err, kgo.ErrMaxDecompress) // requests, to be refused by intake
		if err != nil && !tooLarge {
			if ctx.Err() == nil {
				p.GiveUp(fmt.Errorf("look at the request log: %w", err))
			}
			return
		}
		if len(page.Records) > 0 || tooLarge {
			look.SetPosition(from)
			quiet, moved = min(2*quiet, gateQuietMax), time.Now()
		}
	}
	p.inbox.put(delivery{open: true})
	p.SetState(ownership.Live)
	p.Log.Info("partition live", "position", look.Position(), "pending", p.pending.Load())
}
