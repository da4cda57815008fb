package waterclock_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/waterclock/waterclock"
	kafka  = "github.com/twmb/franz-go"
	pebble = "github.com/cockroachdb/pebble"
)

// room is a directory of the module with all below it.
type room struct {
	name  string
	knows string // the rooms that it may import; "." is the root package
	libs  string // of kafka and pebble those that it may import
}

// rooms are listed bottom first. A room may import only rooms listed before it, so imports run in one direction.
func rooms() []room {
	const all = "kafka pebble"
	return []room{
		// small tools
		{"internal/kit", "", "kafka"},
		// what a timer is, and when it is due
		{"internal/timer", "internal/kit", ""},
		// what producers and consumers import
		{".", "internal/kit internal/timer", "kafka"},
		// what callers of the HTTP API import
		{"client", ". internal/kit", "kafka"},
		// topics, records and raw logs
		{"internal/kafka", ". internal/kit internal/timer", "kafka"},
		// records become requests
		{"intake", ". internal/kafka internal/kit internal/timer", "kafka"},
		// the view on the disk
		{"statestore", "internal/kit internal/timer", "pebble"},
		// how often timers fire to a target
		{"internal/rates", "internal/kit internal/timer", ""},
		// all that commits
		{"emitter", "internal/kafka internal/kit internal/timer", "kafka"},
		// who owns a partition
		{"internal/ownership", "emitter internal/kafka internal/kit internal/timer statestore", "kafka"},
		// what happens to the timers of a partition
		{"internal/partition",
			". emitter intake internal/kafka internal/kit internal/ownership internal/rates internal/timer " +
				"statestore", "kafka"},
		// topics with one delay for all
		{"delaytopics", ". emitter intake internal/kafka internal/kit internal/ownership internal/partition " +
			"internal/timer", "kafka"},
		// HTTP: API and console
		{"internal/api", ". internal/kafka internal/kit internal/timer", ""},
		// for the tests of users
		{"waterclocktest", ". client intake internal/api internal/kafka internal/partition internal/timer", "kafka"},
		// a verdict from logs alone
		{"internal/audit", ". intake internal/kafka internal/timer", all},
		// an instance
		{"internal/node", ". delaytopics emitter intake internal/api internal/audit internal/kafka internal/kit " +
			"internal/ownership internal/partition internal/rates internal/timer statestore", all},
		// measuring
		{"bench", ". client internal/audit internal/kit internal/node", "kafka"},
		// the command line
		{"cmd", ". bench client internal/api internal/kit internal/node internal/timer", ""},
		// for tests alone
		{"internal/kafkatest", "internal/audit internal/kit internal/timer", "kafka"},
		// charts, alerts, dashboards
		{"deploy", "", ""},
	}
}

// narrow are packages that may import less than their room: package, what it must not import, and why.
func narrow() [][3]string {
	return [][3]string{
		{"internal/partition/planner", kafka + " emitter intake internal/kafka statestore",
			"what decides about timers is pure"},
		{"internal/api/access", "internal/timer internal/kafka .", "who may do what does not depend on what is done"},
		{"internal/audit/history", "internal intake", "a verdict rests on what users see"},
		{"internal/node/config", "internal/api", "settings do not depend on who serves them"},
	}
}

// TestImportsFollowTheRooms checks the imports of non-test files against rooms and narrow.
func TestImportsFollowTheRooms(t *testing.T) {
	libs := map[string]string{"kafka": kafka, "pebble": pebble}
	before := []string{}
	named := make(map[string]room)
	for _, r := range rooms() {
		for _, known := range strings.Fields(r.knows) {
			if !slices.Contains(before, known) {
				t.Errorf("%s may import %s, which is not listed before it", r.name, known)
			}
		}
		before, named[r.name] = append(before, r.name), r
	}
	for _, p := range packages(t) {
		dir := directory(p.ImportPath)
		r, ok := named[roomOf(dir)]
		if !ok {
			t.Errorf("%s is in no room: name it in rooms, with what it may import", dir)
		}
		for _, imported := range p.Imports {
			if to := roomOf(directory(imported)); strings.HasPrefix(imported, module) && to != r.name &&
				!slices.Contains(strings.Fields(r.knows), to) {
				t.Errorf("%s imports %s, which room %s must not know", dir, directory(imported), r.name)
			}
			for name, path := range libs {
				if within(imported, path) && !slices.Contains(strings.Fields(r.libs), name) {
					t.Errorf("%s imports %s, which room %s must not know", dir, imported, r.name)
				}
			}
		}
		for _, n := range narrow() {
			for _, not := range strings.Fields(n[1]) {
				if within(dir, n[0]) && slices.ContainsFunc(p.Imports, func(i string) bool {
					dir, ours := directory(i), strings.HasPrefix(i, module)
					return within(i, not) || ours && !within(dir, n[0]) && within(dir, not)
				}) {
					t.Errorf("%s imports %s: %s", dir, not, n[2])
				}
			}
		}
	}
}

// directory returns the directory of a package of the module, "." for the root.
func directory(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// roomOf returns the room of a directory: one level, below internal two.
func roomOf(dir string) string {
	parts := strings.Split(dir, "/")
	if parts[0] == "internal" && len(parts) > 1 {
		return strings.Join(parts[:2], "/")
	}
	return parts[0]
}

// within reports whether a path is another, or below it.
func within(path, of string) bool { return path == of || strings.HasPrefix(path, of+"/") }

// listed is what "go list -json" says of a package.
type listed struct {
	ImportPath string
	Imports    []string // of files that are no tests
}

func packages(t *testing.T) (all []listed) {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the module: %v", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("read the list: %v", err)
		}
		all = append(all, p)
	}
}

// A receiver begins with the first letter of its type. Otherwise it is left over from a former name of the type: rename
// the receiver.
func TestReceiversFitTheirTypes(t *testing.T) {
	n := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || len(f.Recv.List[0].Names) == 0 || f.Recv.List[0].Names[0].Name == "_" {
				continue
			}
			of := f.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			if index, ok := of.(*ast.IndexExpr); ok {
				of = index.X
			}
			name, receiver := types.ExprString(of), f.Recv.List[0].Names[0].Name
			if n++; !strings.EqualFold(name[:1], receiver[:1]) {
				t.Errorf("%s: the receiver of %s.%s is called %s", path, name, f.Name.Name, receiver)
			}
		}
		return nil
	})
	if err != nil || n < 1000 {
		t.Errorf("%d methods, %v", n, err)
	}
}
