package partition

import (
	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
)

// owned is embedded by every struct that works for the partition.
type owned struct {
	o     Options
	life  *ownership.Life
	clock clock
}

// source names the record that a generation of this partition comes from: a request or, if the timer was moved here,
// a changelog record.
func (w *owned) source(generation int64) waterclock.Source {
	generation = timer.Ref{Offset: generation}.Generation()
	if at, moved := timer.MovedAt(generation); moved {
		return waterclock.Source{Topic: w.o.Topics.Changelog.Name, Partition: w.o.Partition, Offset: at}
	}
	return waterclock.Source{Topic: w.o.Topics.Request.Name, Partition: w.o.Partition, Offset: generation}
}

// hasEvents reports whether events are written for the request topic.
func (w *owned) hasEvents() bool { return w.o.Topics.Events.Name != "" }

// warn logs a warning. suppressed is how many warnings of this kind were left out before it.
func (w *owned) warn(suppressed int, msg string, attrs ...any) {
	if suppressed > 0 {
		attrs = append(attrs, "not_logged_before", suppressed)
	}
	w.life.Log.Warn(msg, attrs...)
}
