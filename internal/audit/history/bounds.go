package history

// bounds: what has a limit stays within it.
func bounds(x *index) {
	for _, g := range x.Gauges {
		if g.Value > g.Limit {
			x.broken("bounds", "", nil, "%s of %s is %g at %s, and the limit is %g", g.Name, g.Of, g.Value,
				g.At, g.Limit)
		}
	}
}
