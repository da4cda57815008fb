package route

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/timer"
)

// Instances asks all instances that own something, and this one, which comes first; the others are sorted by name. An
// instance that cannot be asked has Problem set. If the directory cannot be read that is this instance, and the
// others are unknown. The second result is the owners according to the directory.
func (r *Router) Instances(ctx context.Context) ([]Instance, map[timer.TopicPartition]Owner) {
	list := []Instance{r.o.Local.Status()}
	list[0].SettingsDiffer = r.o.SettingsOf(r.o.Process)
	others, owners, err := r.others(ctx, &Call{Kind: Status})
	if err != nil && list[0].Problem == "" {
		list[0].Problem = err.Error()
		if stuck, ok := errors.AsType[*StuckError](err); ok {
			list[0].Problem = stuck.Detail // in this state partitions do not move
		}
	}
	for _, o := range others {
		if o.err == nil && o.answer.Instance == nil {
			o.err = errors.New("empty response")
		}
		var i Instance
		if o.err == nil {
			i = *o.answer.Instance
		} else {
			i = o.unknown()
		}
		i.SettingsDiffer = r.o.SettingsOf(o.owner.Process)
		list = append(list, i)
	}
	slices.SortFunc(list[1:], func(a, b Instance) int { return strings.Compare(a.Name, b.Name) })
	return list, owners
}

// other is another instance, and its answer.
type other struct {
	owner  Owner
	answer Answer
	err    error
}

// unknown returns the entry of an instance that could not be asked.
func (o *other) unknown() Instance {
	i := Instance{Name: o.owner.Process, API: o.owner.API, Problem: o.err.Error()}
	if elsewhere, ok := errors.AsType[*ElsewhereError](o.err); ok {
		i.Problem = elsewhere.Why
		if o.owner.API == "" {
			i.Problem = "it has no API: " + i.Problem
		}
	}
	return i
}

// others asks all instances that own something, except this process, concurrently. The second result is the owners
// according to the directory; an error means that it cannot be read.
func (r *Router) others(ctx context.Context, c *Call) ([]other, map[timer.TopicPartition]Owner, error) {
	owners, err := r.owners.of(ctx, ownersAge)
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{r.o.Process: true}
	answers := make(chan other)
	n := 0
	for _, owner := range owners {
		if seen[owner.Process] {
			continue
		}
		seen[owner.Process] = true
		n++
		go func() {
			a, err := r.hopTo(ctx, owner, c)
			answers <- other{owner, a, err}
		}()
	}
	all := make([]other, n)
	for i := range all {
		all[i] = <-answers
	}
	return all, owners, nil
}
