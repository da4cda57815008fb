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
	Folder string // of the importer
	Import string // or "" if it is the folder itself
	Why    string
}

func (v Violation) String() string {
	if v.Import == "" {
		return fmt.Sprintf("%s: %s", v.Folder, v.Why)
	}
	return fmt.Sprintf("%s must not know %s: %s", v.Folder, v.Import, v.Why)
}

// checker knows the module's path, to tell its folders from other imports.
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
		return cmp.Or(cmp.Compare(a.Folder, b.Folder), cmp.Compare(a.Import, b.Import))
	})
	return slices.Compact(found)
}

// breaks returns the imports of p that r forbids.
func (c checker) breaks(p Package, r Rule) []Violation {
	folder, _ := c.folder(p.ImportPath)
	if !within(folder, r.Folder) {
		return nil
	}
	imports := p.Deps
	if r.Direct {
		imports = p.Imports
	}
	var found []Violation
	for _, imported := range imports {
		if c.matchesAny(imported, r) {
			found = append(found, Violation{folder, imported, r.Why})
		}
	}
	return found
}

func (c checker) matchesAny(imported string, r Rule) bool {
	folder, ours := c.folder(imported)
	if ours && within(folder, r.Folder) {
		return false // a folder may know itself
	}
	return slices.ContainsFunc(r.Not, func(not string) bool {
		switch {
		case not == engine:
			return ours && folder != ""
		case ours:
			return within(folder, not)
		}
		return imported == not || strings.HasPrefix(imported, not+"/")
	})
}

// importsTests finds what is for tests in what is not.
func (c checker) importsTests(p Package) []Violation {
	folder, _ := c.folder(p.ImportPath)
	var found []Violation
	for _, imported := range p.Deps {
		if f, ours := c.folder(imported); ours && onTests(f) && !onTests(folder) {
			found = append(found, Violation{folder, imported, "only tests may"})
		}
	}
	return found
}

// isPublic finds an importable folder that nobody decided on.
func (c checker) isPublic(p Package) []Violation {
	folder, _ := c.folder(p.ImportPath)
	if p.Name == "main" || slices.Contains(strings.Split(folder, "/"), "internal") {
		return nil
	}
	if slices.ContainsFunc(public(), func(root string) bool { return within(folder, root) }) {
		return nil
	}
	return []Violation{{Folder: folder, Why: "only the root package is public, put it under internal"}}
}

// bindsAll finds a second package that imports all others.
func (c checker) bindsAll(p Package) []Violation {
	folder, _ := c.folder(p.ImportPath)
	left := map[string]bool{}
	for _, b := range binders() {
		left[b] = true
	}
	for _, imported := range p.Imports {
		if f, ours := c.folder(imported); ours {
			maps.DeleteFunc(left, func(b string, _ bool) bool { return within(f, b) })
		}
	}
	if len(left) > 0 || within(folder, service) {
		return nil
	}
	return []Violation{{Folder: folder, Why: "only " + service + " imports all others"}}
}

// folder returns the folder of an import path inside the module; "" is the root.
func (c checker) folder(path string) (folder string, ours bool) {
	if path == c.module {
		return "", true
	}
	return strings.CutPrefix(path, c.module+"/")
}
