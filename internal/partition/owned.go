package partition

import (
	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
)

// owned is what every room knows of the partition.
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

// tells reports whether the request topic has events.
func (w *owned) tells() bool { return w.o.Topics.Events.Name != "" }

// warn logs a warning. unsaid is how many of its kind were not logged before.
func (w *owned) warn(unsaid int, msg string, attrs ...any) {
	if unsaid > 0 {
		attrs = append(attrs, "not_logged_before", unsaid)
	}
	w.life.Log.Warn(msg, attrs...)
}
