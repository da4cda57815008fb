package history

// bounds: a gauge with a limit stays within it.
func bounds(x *index) {
	for _, g := range x.Gauges {
		if g.Value > g.Limit {
			x.broken("bounds", "", nil, "%s of %s is %g at %s, above the limit of %g", g.Name, g.Instance, g.Value,
				g.At, g.Limit)
		}
	}
}
