package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/api"
)

// partError says that partitions are missing from what has been printed.
type partError struct{ missing []api.Missing }

// Error has a line for each detail, which names all partitions that have the same.
func (p *partError) Error() string {
	var details []string
	by := make(map[string][]string) // partitions by detail
	for i := range p.missing {
		m := &p.missing[i]
		if by[m.Detail] == nil {
			details = append(details, m.Detail)
		}
		by[m.Detail] = append(by[m.Detail], fmt.Sprint(m.Partition))
	}
	var lines []string
	for _, detail := range details {
		which, are := "partition", "is"
		if len(by[detail]) > 1 {
			which, are = "partitions", "are"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s missing: %s", which, strings.Join(by[detail], ", "), are, detail))
	}
	return strings.Join(lines, "\n")
}

// gaps are the partitions that a list or a count lacks.
type gaps []api.Missing

// add adds those of one more page.
func (g *gaps) add(missing []api.Missing) {
	for _, m := range missing {
		if !slices.ContainsFunc(*g, func(known api.Missing) bool { return known.Partition == m.Partition }) {
			*g = append(*g, m)
		}
	}
	slices.SortFunc(*g, func(x, y api.Missing) int { return cmp.Compare(x.Partition, y.Partition) })
}

// err returns a partError, or nil if nothing is missing.
func (g gaps) err() error {
	if len(g) == 0 {
		return nil
	}
	return &partError{g}
}

// printGaps returns the error of a list with gaps. With --json it first prints them, as the last line of the list.
func (a *asking) printGaps(g gaps) error {
	if len(g) > 0 && a.json {
		if err := json.NewEncoder(a.p.stdout).Encode(map[string]gaps{"missing": g}); err != nil {
			return err
		}
	}
	return g.err()
}
