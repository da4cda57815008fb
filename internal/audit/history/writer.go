package history

import "strings"

// writer: between two claims of a partition only one process writes, the one that has claimed it; and no step is
// written twice. (waterclock topics follow writes a checkpoint and then a claim, in one step.)
func writer(x *index, l *changelog) {
	var claim *ChangelogRecord
	type step struct { // the very first claim writes a checkpoint too
		kind ChangeKind
		name string
	}
	steps := make(map[step]*ChangelogRecord)
	claims := make(map[string]bool) // by step
	for _, c := range l.changes {
		claims[c.Step] = claims[c.Step] || c.Kind == Claim
	}
	for _, c := range l.changes {
		if c.Kind == TimerChange || c.Step == "" {
			continue
		}
		current := step{c.Kind, c.Step}
		if again := steps[current]; again != nil {
			x.broken("writer", "", []Place{again.Place, c.Place}, "step %s is twice in the changelog of %s/%d",
				c.Step, l.Topic, l.Partition)
		}
		steps[current] = c
		switch {
		case c.Kind == Claim:
			claim = c
		case claim != nil && !claims[c.Step] && (process(c.Step) != process(claim.Step) || c.Group != claim.Group):
			x.broken("writer", "", []Place{claim.Place, c.Place}, "%s of group %s writes step %s to the changelog "+
				"of %s/%d, which %s of group %s has claimed with step %s",
				c.Owner, c.Group, c.Step, l.Topic, l.Partition, claim.Owner, claim.Group, claim.Step)
		}
	}
}

// process is the ID of the process that a step's name begins with.
func process(step string) string {
	id, _, _ := strings.Cut(step, "/")
	return id
}
