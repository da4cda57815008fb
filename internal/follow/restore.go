package follow

import (
	"cmp"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/topics"
)

// restore has a local view take the place of a changelog that was lost. The view is
// whole if it has seen the step that the group's committed offset names.
func (f *follower) restore(i int) error {
	p := &f.parts[i]
	if p.last != nil || p.note.Step == "" {
		return nil
	}
	if f.o.View == nil {
		return fmt.Errorf("changelog %v holds no checkpoint, and requests of that partition were taken in: it was lost; %s", f.changelog(i), topics.LostAdvice)
	}
	v, err := f.o.View(int32(i))
	if err != nil {
		return err
	}
	if v == nil {
		return fmt.Errorf("none of the directories holds anything of %v: name those of all instances", f.requestLog(i))
	}
	if step := cmp.Or(p.note.Last, p.note.Step); v.Last.Step != step && !f.o.AcceptLost {
		return fmt.Errorf("the directory's view of %v, of %s, lacks the last steps before the changelog was lost: what fired in them would fire again; "+
			"name the directories of all instances, or accept that with --accept-lost-changelog", f.requestLog(i), time.UnixMilli(v.Last.Time).UTC().Format(time.RFC3339))
	}
	p.last, p.view = &v.Last, v
	f.report.Restored++
	return nil
}
