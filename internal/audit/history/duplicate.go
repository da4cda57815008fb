package history

// duplicate: each occurrence of each request is emitted at most once, and an emitted one is neither a dead letter nor
// still pending.
func duplicate(x *index, f *facts) {
	twice(x, f)
	beyondTriggers(x, f)
	t := f.pending.pending()
	if t == nil || f.moves {
		return
	}
	for _, m := range f.emissions {
		if f.origin(x, m.Source) == f.origin(x, t.Source) && m.Occurrence >= t.Occurrence {
			x.broken("duplicate", f.id, []Place{m.Place},
				"occurrence %d of %s was emitted while occurrence %d is still pending", m.Occurrence, m.Source,
				t.Occurrence)
		}
	}
}

// twice finds emissions, and dead letters of emissions, of one occurrence.
func twice(x *index, f *facts) {
	type occurrence struct {
		source Place
		n      int64
	}
	byEvent, byOccurrence := map[string]Place{}, map[occurrence]Place{}
	for _, m := range f.emissions {
		first, again := byEvent[m.Event]
		if !again && m.Occurrence > 0 {
			first, again = byOccurrence[occurrence{f.origin(x, m.Source), m.Occurrence}]
		}
		if again {
			x.broken("duplicate", f.id, []Place{first, m.Place}, "occurrence %d of %s was emitted at %s and at %s",
				m.Occurrence, m.Source, first, m.Place)
		}
		byEvent[m.Event], byOccurrence[occurrence{f.origin(x, m.Source), m.Occurrence}] = m.Place, m.Place
	}
	for _, l := range f.letters {
		if !l.Emission || l.Occurrence <= 0 {
			continue
		}
		o := occurrence{f.origin(x, l.Source), l.Occurrence}
		if first, again := byOccurrence[o]; again {
			x.broken("duplicate", f.id, []Place{first, l.Place},
				"occurrence %d of %s is at %s and, as a dead letter, at %s", l.Occurrence, l.Source, first, l.Place)
		}
		byOccurrence[o] = l.Place
	}
}

// beyondTriggers finds more extra firings of a recurring timer than requests that trigger it.
func beyondTriggers(x *index, f *facts) {
	extra := map[Place]int{}
	for _, m := range f.emissions {
		if m.Occurrence == 0 && x.requested(m.Source) && !goesOn(x, f, m.Source) {
			extra[m.Source]++
		}
	}
	for source, n := range extra {
		triggers, _ := f.triggers.after(source.Offset)
		if r := x.sent[source]; r != nil {
			triggers, _ = f.triggersOf(r)
		}
		if n > triggers {
			x.broken("duplicate", f.id, []Place{source}, "%s was triggered %d times but fired %d times for that",
				source, triggers, n)
		}
	}
}
