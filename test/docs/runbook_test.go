package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	alerts "github.com/waterclock/waterclock/deploy/prometheus"
)

const (
	// settings is the section that exports the names that commands use.
	settings = "Before you begin"
	// firstLook is what to read whatever is wrong.
	firstLook = "First look"
)

// step is a command of a document, or what an operator does by other means.
type step struct {
	at     string // file:line of its block
	text   string
	byHand bool
	shows  []string // what the command prints
}

// steps returns what the blocks of a section say to do.
func (s section) steps(t *testing.T) (all []step) {
	t.Helper()
	for _, b := range s.blocks {
		if b.language != "sh" {
			t.Errorf("%s: only blocks of sh are run", b.at)
		}
		for line := range strings.SplitSeq(strings.ReplaceAll(b.text, "\\\n", ""), "\n") {
			if shown, ok := strings.CutPrefix(line, "#> "); ok {
				last := len(all) - 1
				if last < 0 || all[last].byHand {
					t.Fatalf("%s: no command above shows %s", b.at, shown)
				}
				all[last].shows = append(all[last].shows, shown)
			} else if byHand, ok := strings.CutPrefix(line, "# "); ok {
				all = append(all, step{at: b.at, text: byHand, byHand: true})
			} else if line != "" {
				all = append(all, step{at: b.at, text: line})
			}
		}
	}
	return all
}

// A command that no test runs is red: each section with commands is an alert's or an incident's, and each alert and
// each incident has some. The names that they use are those that the runbook has one export, and those that a section
// has one set.
func TestEachCommandIsRun(t *testing.T) {
	t.Parallel()
	wanted := map[string]bool{settings: true, firstLook: true}
	for _, a := range alerts.All() {
		wanted[a.Name] = true
	}
	for name := range incidents {
		wanted[name] = true
	}
	exported := map[string]bool{}
	for _, s := range find(t, runbook, settings).steps(t) {
		name, _, _ := strings.Cut(strings.TrimPrefix(s.text, "export "), "=")
		exported[name] = true
	}
	used := regexp.MustCompile(`\$([A-Z_]+)`)
	for _, s := range sections(t, runbook) {
		steps := s.steps(t)
		if len(steps) > 0 && !wanted[s.name] {
			t.Errorf("%s: no test runs the commands of section %q", steps[0].at, s.name)
		}
		for _, step := range steps {
			delete(wanted, s.name)
			for _, m := range used.FindAllStringSubmatch(strings.Join(append(step.shows, step.text), "\n"), -1) {
				if !exported[m[1]] && !strings.Contains(s.text, "`"+m[1]+"`") {
					t.Errorf("%s: nothing says what $%s is", step.at, m[1])
				}
			}
		}
	}
	for name := range wanted {
		t.Errorf("%s has no commands for %q", runbook, name)
	}
}

// What the commands look for in the log is what the service logs, so that an empty answer means that it did not.
func TestLogLinesAreThere(t *testing.T) {
	t.Parallel()
	logged := texts(t, "statestore", "delaytopics", "emitter", "internal")
	looks := regexp.MustCompile(`^journalctl .*\| grep (?:-E )?(?:'([^']+)'|"([^"]+)")`)
	n := 0
	for _, s := range sections(t, runbook) {
		for _, step := range s.steps(t) {
			m := looks.FindStringSubmatch(step.text)
			if m == nil {
				continue
			}
			for text := range strings.SplitSeq(m[1]+m[2], "|") {
				n++
				if !strings.Contains(logged, text) {
					t.Errorf("%s: nothing logs %q", step.at, text)
				}
			}
		}
	}
	if n < 10 {
		t.Errorf("found %d log lines only", n)
	}
}

// texts returns the string constants of the code below some directories, each on a line.
func texts(t *testing.T, dirs ...string) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				text, constant := constantOf(n)
				all.WriteString(text + "\n")
				return !constant
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// constantOf returns the text of a string, or of a sum of strings.
func constantOf(n ast.Node) (text string, constant bool) {
	switch n := n.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(n.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, known := constantOf(n.X)
		right, alsoKnown := constantOf(n.Y)
		return left + right, known && alsoKnown
	}
	return "", false
}
