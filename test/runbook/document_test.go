package runbook

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/deploy/monitoring"
)

const (
	runbook = "docs/RUNBOOK.md"
	// settings is the section that exports the names that commands use.
	settings = "Before you begin"
	// firstLook is what to read whatever is wrong.
	firstLook = "First look"
)

// section is a heading of a document, and what is below it.
type section struct {
	name, text string
	steps      []step
}

// step is a command of a document, or what an operator does by other means.
type step struct {
	at     string // file:line
	text   string
	byHand bool
	shows  []string // what the command prints
}

// sections reads a document. Its commands are the blocks of sh in it.
func sections(t *testing.T, document string) (all []section) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile(`^##+ (.*)$`)
	now := &section{} // what is above the first heading
	fenced, continued := false, false
	for i, line := range strings.Split(string(data), "\n") {
		at, h := fmt.Sprint(document, ":", i+1), heading.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "```"):
			if !fenced && line != "```sh" {
				t.Errorf("%s: only blocks of sh are run", at)
			}
			fenced, continued = !fenced, false
		case fenced:
			continued = now.add(t, at, line, continued)
		case h != nil:
			all = append(all, *now)
			now = &section{name: h[1]}
		default:
			now.text += line + "\n"
		}
	}
	return append(all, *now)
}

// add adds a line of a block. It reports whether the next line continues this one.
func (s *section) add(t *testing.T, at, line string, continues bool) bool {
	t.Helper()
	last := len(s.steps) - 1
	text, more := strings.CutSuffix(line, `\`)
	switch {
	case continues:
		s.steps[last].text += text
	case line == "":
	case strings.HasPrefix(line, "#> "):
		if last < 0 || s.steps[last].byHand {
			t.Fatalf("%s: no command above shows that", at)
		}
		s.steps[last].shows = append(s.steps[last].shows, strings.TrimPrefix(line, "#> "))
		return false
	case strings.HasPrefix(line, "# "):
		s.steps = append(s.steps, step{at: at, text: strings.TrimPrefix(line, "# "), byHand: true})
		return false
	default:
		s.steps = append(s.steps, step{at: at, text: text})
	}
	return more
}

// find returns a section of the runbook.
func find(t *testing.T, name string) section {
	t.Helper()
	all := sections(t, runbook)
	i := slices.IndexFunc(all, func(s section) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("%s has no section %q", runbook, name)
	}
	return all[i]
}

// A command that no test runs is red: each section with commands is an alert's or an incident's, and each alert and
// each incident has some.
func TestEachCommandIsRun(t *testing.T) {
	t.Parallel()
	wanted := map[string]bool{settings: true, firstLook: true}
	for _, a := range monitoring.Alerts() {
		wanted[a.Name] = true
	}
	for name := range incidents {
		wanted[name] = true
	}
	for _, s := range sections(t, runbook) {
		if len(s.steps) == 0 {
			continue
		}
		if !wanted[s.name] {
			t.Errorf("%s: no test runs the commands of section %q", s.steps[0].at, s.name)
		}
		delete(wanted, s.name)
	}
	for name := range wanted {
		t.Errorf("%s has no commands for %q", runbook, name)
	}
}

// Each incident says how it shows, what it means, what to do, when it is over, and what is lost.
func TestIncidentsAreWhole(t *testing.T) {
	t.Parallel()
	for name := range incidents {
		text, at := find(t, name).text, 0
		for _, part := range []string{"**You see:**", "**It means:**", "**Do:**", "**Over:**", "**Lost:**"} {
			i := strings.Index(text[at:], "\n"+part+" ")
			if i < 0 && part == "**Do:**" {
				i = strings.Index(text[at:], "\n"+part+"\n")
			}
			if i < 0 {
				t.Errorf("%s has no %s behind the part before", name, part)
				continue
			}
			at += i
		}
	}
}

// Commands stand in blocks, where they are run, and not in the text. The table of what to say on Kubernetes is the
// exception.
func TestNoCommandsInTheText(t *testing.T) {
	t.Parallel()
	command := regexp.MustCompile("`(curl|kcat|journalctl|systemctl|kafka-[a-z-]+\\.sh|waterclock [a-z]+) [^`]*`")
	for _, s := range sections(t, runbook) {
		for line := range strings.Lines(s.text) {
			if found := command.FindString(line); found != "" && !strings.HasPrefix(line, "| ") {
				t.Errorf("%s: %s is not in a block", s.name, found)
			}
		}
	}
}

// What the commands look for in the log stands in the code, so that an empty answer means that it was not logged.
func TestLogLinesAreThere(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	joined := regexp.MustCompile(`"\s*\+\n\s*"`) // strings of several lines
	for _, dir := range []string{"statestore", "delaytopics", "emitter", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			code.Write(joined.ReplaceAll(data, nil))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	looks := regexp.MustCompile(`^journalctl .*\| grep (?:-E )?(?:'([^']+)'|"([^"]+)")`)
	n := 0
	for _, s := range sections(t, runbook) {
		for _, step := range s.steps {
			m := looks.FindStringSubmatch(step.text)
			if m == nil {
				continue
			}
			for text := range strings.SplitSeq(m[1]+m[2], "|") {
				n++
				if !strings.Contains(code.String(), text) {
					t.Errorf("%s: nothing logs %q", step.at, text)
				}
			}
		}
	}
	if n < 10 {
		t.Errorf("found %d log lines only", n)
	}
}
