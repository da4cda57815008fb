package client

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/waterclock/waterclock"
)

// constants returns the texts of the constants of a file whose names have a prefix.
func constants(t *testing.T, file string, prefixes ...string) (texts []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if i >= len(spec.Values) ||
				!slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name.Name, p) }) {
				continue
			}
			if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				texts = append(texts, text)
			}
		}
		return true
	})
	return texts
}

// Every reason that the API gives is a constant of this package or of package waterclock, and none is without use.
func TestReasonsAreComplete(t *testing.T) {
	given := constants(t, "../internal/api/problem.go", "Reason")
	given = append(given, constants(t, "../internal/api/access/problem.go", "Reason")...)
	given = append(given, constants(t, "../internal/api/route/call.go", "PartitionFailed", "KafkaUnreachable")...)
	ours := constants(t, "error.go", "Reason")
	if len(given) < 25 || len(ours) < 25 {
		t.Fatalf("found only %d and %d reasons", len(given), len(ours))
	}
	for _, r := range given {
		if !slices.Contains(ours, r) && !slices.Contains(waterclock.Reasons(), waterclock.Reason(r)) {
			t.Errorf("the API's reason %s has no constant", r)
		}
	}
	for _, r := range ours {
		if !slices.Contains(given, r) {
			t.Errorf("the API does not give the reason %s", r)
		}
	}
	for _, r := range append(waterclock.Reasons(), "of-a-newer-version") {
		var err error = &Error{Reason: r}
		if !errors.Is(err, r) || errors.Is(err, waterclock.Reason("other")) {
			t.Errorf("errors.Is does not tell %s", r)
		}
	}
}
