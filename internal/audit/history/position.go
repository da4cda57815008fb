package history

// position: the position of a partition never goes back, never passes a request that is not settled, and never stays
// behind a settled one, whatever the order in which sub-partitions finish.
//
// It is seen in the changelog. A request that makes a timer is settled by the step that writes the timer
// first. So that step's position is behind the request, and that of the step before is not.
func position(x *index, l *changelog) {
	at, incarnation := int64(-1), "" // the last position, and the topic's incarnation
	first := make(map[Place]bool)
	var step []*ChangelogRecord // the records of the current step
	for _, c := range l.changes {
		switch c.Kind {
		case TimerChange:
			step = append(step, c)
			continue
		case Claim:
			step = nil // claims stand alone, except where topics follow writes
			continue
		case Checkpoint:
		}
		if c.Incarnation != incarnation { // the topic was recreated, and its log begins again
			at, incarnation = -1, c.Incarnation
			clear(first)
		}
		if c.Position < at {
			x.broken("position", "", []Place{c.Place}, "step %s sets the position of %s/%d back from %d to %d", c.Step,
				l.Topic, l.Partition, at, c.Position)
		}
		for _, t := range step {
			if t.Timer == nil || t.Timer.Source.Topic != l.Topic {
				continue
			}
			source := t.Timer.Source
			if source.Offset >= c.Position {
				x.broken("position", t.ID, []Place{t.Place, c.Place},
					"step %s settles %s but leaves the position at %d", c.Step, source, c.Position)
			}
			if !first[source] && source.Offset < at && !x.Scope.Compacted {
				x.broken("position", t.ID, []Place{t.Place, c.Place},
					"step %s settles %s, which the position %d had passed before", c.Step, source, at)
			}
			first[source] = true
		}
		at, step = max(at, c.Position), nil
	}
}
