package simulation

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// site is a place in a function.
type site struct {
	path      []ast.Node // from the function to a node
	variables map[string]bool
}

func (s *site) node() ast.Node { return s.path[len(s.path)-1] }

// step takes one step.
func (s *site) step(words []string) error {
	switch {
	case len(words) == 0:
		return nil
	case words[0] == "body":
		s.path = append(s.path, s.path[0].(*ast.FuncDecl).Body)
		return nil
	case words[0] == "..":
		return s.around()
	case words[0] == "arg" && len(words) == 2:
		call, ok := s.node().(*ast.CallExpr)
		n, err := strconv.Atoi(words[1])
		if !ok || err != nil || n > len(call.Args) {
			return fmt.Errorf("there is no %q", words)
		}
		s.path = append(s.path, call.Args[n-1])
		return nil
	}
	var found [][]ast.Node
	walk(s.node(), func(path []ast.Node) bool {
		if len(path) == 1 {
			return true
		}
		match := s.match(words, path)
		if match != nil {
			found = append(found, slices.Concat(s.path, match[1:]))
		}
		return match == nil
	})
	if len(found) != 1 {
		return fmt.Errorf("%q is found %d times, and not once", strings.Join(words, " "), len(found))
	}
	s.path = found[0]
	return nil
}

// around goes outwards to the next if, for or case.
func (s *site) around() error {
	for len(s.path) > 1 {
		s.path = s.path[:len(s.path)-1]
		switch s.node().(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.CaseClause:
			return nil
		}
	}
	return errors.New("no if, for or case is around it")
}

// walk calls f for each node in root, with the path to it. It does not enter a node for which f returns false.
func walk(root ast.Node, f func(path []ast.Node) bool) {
	var path []ast.Node
	ast.PreorderStack(root, nil, func(n ast.Node, around []ast.Node) bool {
		path = append(append(path[:0], around...), n)
		return f(path)
	})
}

// match returns the path to the node that a step finds at path, nil if it finds none there. That is path itself except
// for a name: there it leads to the whole x.N, or to the value of the key.
func (s *site) match(words []string, path []ast.Node) []ast.Node {
	kind, names := words[0], words[1:]
	n := path[len(path)-1]
	of, parts := kindsOf(n)
	switch call, _ := n.(*ast.CallExpr); {
	case isKind(kind) && !slices.Contains(of, kind), kind == "call" && (len(names) == 0 || !calls(call, names[0])):
		return nil
	case !isKind(kind):
		if s.name(path) != kind {
			return nil
		}
		path = slices.Clone(path)
		switch around := path[len(path)-2].(type) {
		case *ast.SelectorExpr:
			path = path[:len(path)-1]
		case *ast.KeyValueExpr:
			path[len(path)-1] = around.Value
		}
		parts = path[len(path)-1:]
	}
	mentioned := s.mentioned(parts)
	for _, name := range names {
		if mentioned[strings.TrimPrefix(name, "!")] == strings.HasPrefix(name, "!") {
			return nil
		}
	}
	return path
}

// isKind reports whether a word is a kind of node: one of these words, or an operator. Any other word is a name or a
// text literal.
func isKind(word string) bool {
	switch word {
	case "if", "for", "case", "assign", "return", "send", "defer", "call":
		return true
	}
	return !token.IsIdentifier(word) && !strings.Contains(word, `"`)
}

// kindsOf returns the kinds of a node, and those of its parts whose names count.
func kindsOf(n ast.Node) (kinds []string, parts []ast.Node) {
	switch n := n.(type) {
	case *ast.IfStmt:
		return []string{"if"}, []ast.Node{n.Init, n.Cond}
	case *ast.ForStmt:
		return []string{"for"}, []ast.Node{n.Init, n.Cond, n.Post}
	case *ast.RangeStmt:
		return []string{"for"}, []ast.Node{n.X}
	case *ast.CaseClause:
		for _, e := range n.List {
			parts = append(parts, e)
		}
		return []string{"case"}, parts
	case *ast.AssignStmt:
		kinds = []string{"assign", n.Tok.String()}
	case *ast.IncDecStmt:
		kinds = []string{n.Tok.String()}
	case *ast.ReturnStmt:
		kinds = []string{"return"}
	case *ast.SendStmt:
		kinds = []string{"send"}
	case *ast.DeferStmt:
		kinds = []string{"defer"}
	case *ast.CallExpr:
		kinds = []string{"call"}
	case *ast.BinaryExpr:
		kinds = []string{n.Op.String()}
	}
	return kinds, []ast.Node{n}
}

func calls(call *ast.CallExpr, name string) bool {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name == name
	case *ast.Ident:
		return f.Name == name
	}
	return false
}

// mentioned returns the names that nodes mention.
func (s *site) mentioned(in []ast.Node) map[string]bool {
	all := make(map[string]bool)
	for _, n := range in {
		if n == nil {
			continue // an optional part
		}
		walk(n, func(path []ast.Node) bool {
			all[s.name(path)] = true
			_, function := path[len(path)-1].(*ast.FuncLit)
			return !function
		})
	}
	return all
}

// name returns the text of a node that is a name or a literal. It is "" for all other nodes, and for variables.
func (s *site) name(path []ast.Node) string {
	switch n := path[len(path)-1].(type) {
	case *ast.BasicLit:
		return n.Value
	case *ast.Ident:
		field := false
		if len(path) > 1 {
			switch around := path[len(path)-2].(type) {
			case *ast.SelectorExpr:
				field = around.Sel == n
			case *ast.KeyValueExpr:
				field = around.Key == n
			}
		}
		if field || !s.variables[n.Name] {
			return n.Name
		}
	}
	return ""
}

// variablesOf returns the names of a function's receiver, parameters, results and variables.
func variablesOf(decl *ast.FuncDecl) map[string]bool {
	all := make(map[string]bool)
	note := func(exprs ...ast.Expr) {
		for _, e := range exprs {
			if id, ok := e.(*ast.Ident); ok {
				all[id.Name] = true
			}
		}
	}
	note(namesIn(decl.Recv)...)
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			note(namesIn(n.Params)...)
			note(namesIn(n.Results)...)
		case *ast.ValueSpec:
			for _, name := range n.Names {
				note(name)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				note(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				note(n.Key, n.Value)
			}
		}
		return true
	})
	return all
}

// namesIn returns the names of parameters or results.
func namesIn(fields *ast.FieldList) (names []ast.Expr) {
	if fields == nil {
		return nil
	}
	for _, f := range fields.List {
		for _, name := range f.Names {
			names = append(names, name)
		}
	}
	return names
}
