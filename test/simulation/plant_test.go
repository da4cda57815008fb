package simulation

import (
	"bytes"
	"go/ast"
	"go/build"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// TestBugsCanBePlanted: each change finds its node, and the changed package passes the type checker. So it does, with
// the same bug in it, if all variables of the product are renamed, its lines broken elsewhere, and its comments gone.
func TestBugsCanBePlanted(t *testing.T) {
	runs.NotRaced(t)
	p := loadProduct(t)
	renamed := make(map[string][]byte)
	for _, b := range bugs() {
		want, err := plant(p.root, os.ReadFile, b.plant)
		if err != nil {
			t.Errorf("%s: %v", b.name, err)
			continue
		}
		if dir, tests, ok := strings.Cut(b.by, " "); ok && !hasTests(t, filepath.Join(p.root, dir), tests) {
			t.Errorf("%s: %s has no %s", b.name, dir, tests)
		}
		for _, dir := range dirsOf(b.plant) {
			if err := p.rename(dir, renamed); err != nil {
				t.Fatal(err)
			}
		}
		got, err := plant(p.root, func(path string) ([]byte, error) { return renamed[path], nil }, b.plant)
		for _, dir := range dirsOf(b.plant) {
			if err == nil {
				err = p.check(dir, got, nil)
			}
		}
		if err != nil {
			t.Errorf("%s, after renaming: %v", b.name, err)
		}
		for path, text := range got {
			text, want := canonical(t, text), canonical(t, want[path])
			if !prefix.Match(text) || prefix.Match(want) || !bytes.Equal(prefix.ReplaceAll(text, nil), want) {
				t.Errorf("%s, after renaming: another bug in %s", b.name, path)
			}
		}
	}
}

// hasTests reports whether a package has each of the tests of an expression.
func hasTests(t *testing.T, dir, expression string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	for name := range strings.SplitSeq(expression, "|") {
		if !regexp.MustCompile(`(?m)^func ` + name + `\(`).Match(all) {
			return false
		}
	}
	return true
}

// An error names the function, and the step that finds nothing or too much.
func TestImpossibleChanges(t *testing.T) {
	dir := t.TempDir()
	const file = "package p\n\nfunc (t *T) f(n int) int {\n\tif g() && h(n) {\n\t\tg()\n\t}\n\treturn 0\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change
		want string
	}{
		{change{".", "T.g", "call g", drop}, "., T.g: there is no such function"},
		{change{".", "T.f", "call n", drop}, `., T.f: "call n" is found 0 times, and not once`},
		{change{".", "T.f", "call g", drop}, `., T.f: "call g" is found 2 times, and not once`},
		{change{".", "T.f", "if h, call h", drop}, ""},
		{change{".", "T.f", "if !h", never}, `., T.f: "if !h" is found 0 times, and not once`},
		{change{".", "T.f", "call h, arg 2", drop}, `., T.f: there is no ["arg" "2"]`},
		{change{".", "T.f", "return, ..", never}, "., T.f: no if, for or case is around it"},
		{change{".", "T.f", "body", drop}, `., T.f: "drop it" in place of "body": it cannot be dropped`},
		{change{".", "T.f", "call h", "$3"}, `., T.f: "$3" in place of "call h": there is no $3`},
		{change{".", "T.f", "return", "$x"}, `., T.f: "$x" in place of "return": there is no $x`},
	} {
		said := ""
		if _, err := plant(dir, os.ReadFile, []change{c.change}); err != nil {
			said = err.Error()
		}
		if said != c.want {
			t.Errorf("%q: %q, want %q", c.at, said, c.want)
		}
	}
}

// prefix is that of renamed variables.
var prefix = regexp.MustCompile(`\bx_`)

// canonical returns a file without comments, and with lines broken only where they must be.
func canonical(t *testing.T, text []byte) []byte {
	f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	text, err = printed(f)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func printed(f *ast.File) ([]byte, error) {
	var b bytes.Buffer
	err := format.Node(&b, token.NewFileSet(), f)
	return b.Bytes(), err
}

// dirsOf returns the directories of the packages that changes are in.
func dirsOf(changes []change) (dirs []string) {
	for _, c := range changes {
		dirs = append(dirs, "./"+c.dir)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// product type-checks the packages that have bugs.
type product struct {
	root     string
	files    *token.FileSet
	packages map[string][]*ast.File // by directory
	imports  types.Importer
}

// loadProduct gets the types that the packages import from the go command.
func loadProduct(t *testing.T) *product {
	p := &product{files: token.NewFileSet(), packages: make(map[string][]*ast.File)}
	var err error
	if p.root, err = filepath.Abs("../.."); err != nil {
		t.Fatal(err)
	}
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, b := range bugs() {
		args = append(args, dirsOf(b.plant)...)
	}
	list := exec.Command("go", args...)
	list.Dir, list.Stderr = p.root, t.Output()
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, export, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = export
	}
	p.imports = importer.ForCompiler(p.files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return p
}

// parse returns the files of a package.
func (p *product) parse(dir string) ([]*ast.File, error) {
	if files, ok := p.packages[dir]; ok {
		return files, nil
	}
	in, err := build.ImportDir(filepath.Join(p.root, dir), 0)
	if err != nil {
		return nil, err
	}
	for _, name := range in.GoFiles {
		f, err := parser.ParseFile(p.files, filepath.Join(in.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.packages[dir] = append(p.packages[dir], f)
	}
	return p.packages[dir], nil
}

func (p *product) pathOf(f *ast.File) string { return p.files.Position(f.Package).Filename }

// check type-checks a package, with some of its files replaced.
func (p *product) check(dir string, planted map[string][]byte, info *types.Info) error {
	files, err := p.parse(dir)
	if err != nil {
		return err
	}
	files = slices.Clone(files)
	for i, f := range files {
		if text := planted[p.pathOf(f)]; text != nil {
			files[i], err = parser.ParseFile(p.files, p.pathOf(f)+", planted", text, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
		}
	}
	of := types.Config{Importer: p.imports}
	_, err = of.Check(dir, p.files, files, info)
	return err
}

// rename puts x_ before the names of all receivers, parameters, results and local variables of a package, and adds its
// files to renamed.
func (p *product) rename(dir string, renamed map[string][]byte) error {
	files, err := p.parse(dir)
	if err != nil || renamed[p.pathOf(files[0])] != nil {
		return err
	}
	info := types.Info{Defs: make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object)}
	if err := p.check(dir, nil, &info); err != nil {
		return err
	}
	for id, of := range info.Uses {
		info.Defs[id] = of
	}
	for _, f := range files {
		delete(info.Defs, f.Name) // no object, like x in switch x := y.(type)
	}
	for id, of := range info.Defs {
		v, ok := of.(*types.Var)
		if id.Name != "_" && (of == nil || ok && !v.IsField() && v.Parent() != v.Pkg().Scope()) {
			id.Name = "x_" + id.Name
		}
	}
	for _, f := range files {
		if renamed[p.pathOf(f)], err = printed(f); err != nil {
			return err
		}
	}
	return nil
}
