package importtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Package is what "go list -json" tells of one package.
type Package struct {
	ImportPath string
	Name       string
	Imports    []string // by non-test files
	Deps       []string // Imports and all behind them
}

// Violation is one import that breaks a rule.
type Violation struct {
	Directory string // of the importer
	Import    string // or "" if it is the directory itself
	Why       string
}

func (v Violation) String() string {
	if v.Import == "" {
		return fmt.Sprintf("%s: %s", v.Directory, v.Why)
	}
	return fmt.Sprintf("%s must not know %s: %s", v.Directory, v.Import, v.Why)
}

// checker knows the module's path, to tell its directories from other imports.
type checker struct{ module string }

// check returns every violation in the module's packages, sorted.
func (c checker) check(pkgs []Package) []Violation {
	var found []Violation
	for _, p := range pkgs {
		for _, r := range rules() {
			found = append(found, c.breaks(p, r)...)
		}
		found = append(found, c.importsTests(p)...)
		found = append(found, c.isPublic(p)...)
		found = append(found, c.bindsAll(p)...)
	}
	slices.SortFunc(found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Directory, b.Directory), cmp.Compare(a.Import, b.Import))
	})
	return slices.Compact(found)
}

// breaks returns the imports of p that r forbids.
func (c checker) breaks(p Package, r Rule) []Violation {
	directory, _ := c.directory(p.ImportPath)
	if !within(directory, r.Directory) {
		return nil
	}
	imports := p.Deps
	if r.Direct {
		imports = p.Imports
	}
	var found []Violation
	for _, imported := range imports {
		if c.matchesAny(imported, r) {
			found = append(found, Violation{directory, imported, r.Why})
		}
	}
	return found
}

func (c checker) matchesAny(imported string, r Rule) bool {
	directory, ours := c.directory(imported)
	if ours && within(directory, r.Directory) {
		return false // a directory may know itself
	}
	return slices.ContainsFunc(r.Not, func(not string) bool {
		switch {
		case not == engine:
			return ours && directory != ""
		case ours:
			return within(directory, not)
		}
		return imported == not || strings.HasPrefix(imported, not+"/")
	})
}

// importsTests finds what is for tests in what is not.
func (c checker) importsTests(p Package) []Violation {
	directory, _ := c.directory(p.ImportPath)
	var found []Violation
	for _, imported := range p.Deps {
		if f, ours := c.directory(imported); ours && onTests(f) && !onTests(directory) {
			found = append(found, Violation{directory, imported, "only tests may"})
		}
	}
	return found
}

// isPublic finds an importable directory that nobody decided on.
func (c checker) isPublic(p Package) []Violation {
	directory, _ := c.directory(p.ImportPath)
	if p.Name == "main" || slices.Contains(strings.Split(directory, "/"), "internal") {
		return nil
	}
	if slices.ContainsFunc(public(), func(root string) bool { return within(directory, root) }) {
		return nil
	}
	return []Violation{{Directory: directory, Why: "only the root package is public, put it under internal"}}
}

// bindsAll finds a second package that imports all others.
func (c checker) bindsAll(p Package) []Violation {
	directory, _ := c.directory(p.ImportPath)
	left := map[string]bool{}
	for _, b := range binders() {
		left[b] = true
	}
	for _, imported := range p.Imports {
		if f, ours := c.directory(imported); ours {
			maps.DeleteFunc(left, func(b string, _ bool) bool { return within(f, b) })
		}
	}
	if len(left) > 0 || within(directory, service) {
		return nil
	}
	return []Violation{{Directory: directory, Why: "only " + service + " imports all others"}}
}

// directory returns the directory of an import path inside the module; "" is the root.
func (c checker) directory(path string) (directory string, ours bool) {
	if path == c.module {
		return "", true
	}
	return strings.CutPrefix(path, c.module+"/")
}
