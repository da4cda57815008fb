package repartition

import (
	"cmp"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/topics"
)

// restore replaces a changelog that was lost by a local view. The view is complete if it has seen the step that the
// group's committed offset names.
func (j *job) restore(i int) error {
	p := &j.parts[i]
	if p.last != nil || p.note.Step == "" {
		return nil
	}
	if j.o.View == nil {
		return fmt.Errorf(
			"changelog %v holds no checkpoint, and requests of that partition were taken in: it was lost; %s",
			j.changelog(i), topics.LostAdvice)
	}
	v, err := j.o.View(int32(i))
	if err != nil {
		return err
	}
	if v == nil {
		return fmt.Errorf("none of the directories holds anything of %v: name those of all instances", j.requestLog(i))
	}
	if step := cmp.Or(p.note.Last, p.note.Step); v.Last.Step != step && !j.o.AcceptLost {
		return fmt.Errorf("the directory's view of %v, of %s, lacks the last steps before the changelog was lost: "+
			"timers that fired in them would fire again; "+
			"name the directories of all instances, or accept that with --accept-lost-changelog", j.requestLog(i),
			time.UnixMilli(v.Last.Time).UTC().Format(time.RFC3339))
	}
	p.last, p.view = &v.Last, v
	j.report.Restored++
	return nil
}
