package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// ErrInvalid is what every error about the configuration wraps.
var ErrInvalid = errors.New("invalid configuration")

// Problem is one setting that is rejected. It wraps ErrInvalid.
type Problem struct {
	Setting string // its name
	Source  string // variable or file:line that it comes from, if known
	Found   string // its value; empty if it is not set
	Need    string // what it should be, to follow the word "needs"
}

// Error says it in one line.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Setting)
	if p.Found != "" {
		fmt.Fprintf(&b, " is %q,", p.Found)
	}
	b.WriteString(" needs " + p.Need)
	if p.Source != "" {
		fmt.Fprintf(&b, " (%s)", p.Source)
	}
	return b.String()
}

// Unwrap makes errors.Is(err, ErrInvalid) true.
func (p *Problem) Unwrap() error { return ErrInvalid }

// pathless strips the path from a file error, for messages that name it already.
func pathless(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// hint proposes the known name nearest to the one found, if one is near.
func hint(found, prefix string, known []string) string {
	if best := Nearest(found, prefix, known); best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return ""
}

// Nearest is the known name nearest to the one found, or one that ends with its
// words; "" if there is none. What follows the prefix that all names share is
// compared.
func Nearest(found, prefix string, known []string) string {
	best, bestDistance, longer := "", 0, ""
	for _, name := range known {
		d := distance(strings.TrimPrefix(found, prefix), strings.TrimPrefix(name, prefix))
		if best == "" || d < bestDistance {
			best, bestDistance = name, d
		}
		if longer == "" && strings.HasSuffix(name, "-"+found) {
			longer = name
		}
	}
	if bestDistance > max(2, (len(found)-len(prefix))/3) {
		return longer
	}
	return best
}

// distance is Levenshtein's: how many bytes to insert, delete or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

func mapAll(names []string, fn func(string) string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fn(n)
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
