package await

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Tests sleep only in bubbles of testing/synctest, where that costs no time and a slow machine makes no
// difference. Elsewhere they wait for a state (Until) or for as long as a broker needs (For).
func TestNothingSleepsOutsideBubbles(t *testing.T) {
	dirs := make(map[string]map[string]string) // by directory: the text of each test file
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		dir := filepath.Dir(path)
		if dirs[dir] == nil {
			dirs[dir] = make(map[string]string)
		}
		dirs[dir][path] = string(text)
		return err
	})
	if err != nil || len(dirs) < 30 {
		t.Fatalf("%d directories with tests, %v", len(dirs), err)
	}
	for _, files := range dirs {
		for _, at := range sleepers(t, files) {
			t.Errorf("%s: time.Sleep outside of a bubble", at)
		}
	}
}

// The names in this source say which calls are found.
func TestSleepersAreFound(t *testing.T) {
	got := sleepers(t, map[string]string{"x_test.go": `package x
func TestPlain(t *testing.T) { time.Sleep(1) } // found
func TestBubble(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1); onlyThere(); both(); named() }) }
func TestRunner(t *testing.T) { run(t, func() { time.Sleep(1); _ = fake{} }) }
func TestNotRunner(t *testing.T) { both(); t.Run("x", func(t *testing.T) { time.Sleep(1) }) } // found
func TestByName(t *testing.T) { synctest.Test(t, byName) }
func run(t *testing.T, f func()) { synctest.Test(t, func(*testing.T) { f() }) }
func onlyThere() { time.Sleep(1) }
func named() { deeper() }
func deeper() { time.Sleep(1) }
func byName(t *testing.T) { time.Sleep(1) }
func both() { time.Sleep(1) } // found
func nobody() { time.Sleep(1) } // found
type fake struct{}
func (fake) Called() { time.Sleep(1) }
type outside struct{}
func (outside) Called() { time.Sleep(1) } // found
func TestOutside(t *testing.T) { _ = outside{} }
`})
	want := []string{"x_test.go:12:15", "x_test.go:13:17", "x_test.go:17:27", "x_test.go:2:32", "x_test.go:5:76"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// use is a use of a name: in which declaration, and whether that is in a bubble.
type use struct {
	in       *ast.FuncDecl
	bubbled  bool
	position string
}

// uses are the uses of names in one package's tests: of functions, of methods and of types alike.
type uses struct {
	set     *token.FileSet
	runners map[string]bool // functions that run one of their parameters in a bubble
	by      map[string][]use
}

// sleepers returns where time.Sleep is called outside of bubbles: neither in a function that is passed to
// synctest.Test, nor in one that is used only there. A method that is never called by name counts as used
// where its type is used.
func sleepers(t *testing.T, files map[string]string) (found []string) {
	t.Helper()
	u := &uses{set: token.NewFileSet(), runners: map[string]bool{"synctest.Test": true}}
	var decls []*ast.FuncDecl
	for path, text := range files {
		f, err := parser.ParseFile(u.set, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				decls = append(decls, f)
			}
		}
	}
	for before := -1; before != len(u.runners); { // one runner may lead to another
		before = len(u.runners)
		u.by = make(map[string][]use)
		for _, d := range decls {
			u.look(d, d.Body, false)
		}
	}
	for _, s := range u.by["time.Sleep"] {
		if !s.bubbled && !u.inBubbles(s.in, nil) {
			found = append(found, s.position)
		}
	}
	slices.Sort(found)
	return found
}

// look records what is used below node.
func (u *uses) look(in *ast.FuncDecl, node ast.Node, bubbled bool) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if !u.runners[nameOf(n.Fun)] {
				return true
			}
			for _, arg := range n.Args {
				u.look(in, arg, true)
				for _, p := range in.Type.Params.List {
					for _, name := range p.Names {
						if _, isFunc := p.Type.(*ast.FuncType); isFunc && mentions(arg, name.Name) {
							u.runners[in.Name.Name] = true
						}
					}
				}
			}
			return false
		case *ast.SelectorExpr:
			u.note(nameOf(n), in, n, bubbled)
			u.note(n.Sel.Name, in, n, bubbled)
			u.look(in, n.X, bubbled)
			return false
		case *ast.Ident:
			u.note(n.Name, in, n, bubbled)
		}
		return true
	})
}

func (u *uses) note(name string, in *ast.FuncDecl, at ast.Node, bubbled bool) {
	u.by[name] = append(u.by[name], use{in, bubbled, u.set.Position(at.Pos()).String()})
}

// inBubbles reports whether f runs only in bubbles. over are the functions that led to this question.
func (u *uses) inBubbles(f *ast.FuncDecl, over []*ast.FuncDecl) bool {
	name := f.Name.Name
	if f.Recv != nil && len(u.by[name]) == 0 {
		recv := f.Recv.List[0].Type
		if star, ok := recv.(*ast.StarExpr); ok {
			recv = star.X
		}
		name = nameOf(recv)
	}
	return len(u.by[name]) > 0 && !slices.ContainsFunc(u.by[name], func(s use) bool {
		return !s.bubbled && s.in != f && !slices.Contains(over, s.in) && !u.inBubbles(s.in, append(over, f))
	})
}

// nameOf returns a name as it is written, "" for anything else.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return x.Name + "." + e.Sel.Name
		}
	}
	return ""
}

func mentions(node ast.Node, name string) (does bool) {
	ast.Inspect(node, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		does = does || ok && id.Name == name
		return true
	})
	return does
}
