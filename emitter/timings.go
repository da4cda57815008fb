package emitter

import (
	"log/slog"
	"slices"
	"time"
)

// slowStep is how long a step may take before it is logged with the parts that took long.
const slowStep = time.Second

// timings are the finished parts of the step under way, and how long each took. They
// belong to the lane's loop.
type timings struct {
	began, last time.Time
	ended       []timing
}

type timing struct {
	part string
	took time.Duration
}

func (t *timings) begin() {
	t.began = time.Now()
	t.last, t.ended = t.began, t.ended[:0]
}

// through records the end of a part.
func (t *timings) through(part string) {
	now := time.Now()
	t.ended = append(t.ended, timing{part, now.Sub(t.last)})
	t.last = now
}

// of returns how long some of the parts took together.
func (t *timings) of(parts ...string) (took time.Duration) {
	for _, l := range t.ended {
		if slices.Contains(parts, l.part) {
			took += l.took
		}
	}
	return took
}

// end logs a step that took long: its total time, and that of each part.
func (t *timings) end(log *slog.Logger, lane string, err error) {
	took := time.Since(t.began)
	if took <= slowStep {
		return
	}
	attrs := []any{"lane", lane, "took", took}
	for _, l := range t.ended {
		attrs = append(attrs, l.part, l.took)
	}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	log.Warn("a step took long", attrs...)
}
