package simulation

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/ast/astutil"
)

// edit changes the function.
func (s *site) edit(do edit) error {
	if do == drop {
		return s.drop()
	}
	code := strings.ReplaceAll(string(do), "$", placeholder)
	if _, err := parser.ParseExpr(code); err == nil {
		return s.replaceExpr(code)
	}
	f, err := parser.ParseFile(token.NewFileSet(), "", "package p; func _() {"+code+"}", parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	s.toStatement()
	body := f.Decls[0].(*ast.FuncDecl).Body
	if err := s.fill(body); err != nil {
		return err
	}
	if _, block := s.node().(*ast.BlockStmt); block {
		return s.replace(s.node(), body)
	}
	var by []ast.Node
	for _, statement := range body.List {
		by = append(by, statement)
	}
	return s.replace(s.node(), by...)
}

// replaceExpr replaces the node, or its conditions or results, by an expression.
func (s *site) replaceExpr(code string) error {
	var old []ast.Expr
	switch n := s.node().(type) {
	case *ast.IfStmt:
		old = []ast.Expr{n.Cond}
	case *ast.ForStmt:
		old = []ast.Expr{n.Cond}
	case *ast.RangeStmt:
		old = []ast.Expr{n.X}
	case *ast.CaseClause:
		old = slices.Clone(n.List)
	case *ast.ReturnStmt:
		old = slices.Clone(n.Results)
	case ast.Expr:
		old = []ast.Expr{n}
	}
	if len(old) == 0 || old[0] == nil {
		return errors.New("there is no expression in it")
	}
	for _, e := range old {
		by, err := parser.ParseExpr(code)
		if err != nil {
			return err
		}
		filled := &ast.ParenExpr{X: by}
		of := site{path: append(slices.Clone(s.path), e)}
		if err := of.fill(filled); err != nil {
			return err
		}
		if err := s.replace(e, filled.X); err != nil {
			return err
		}
	}
	return nil
}

// placeholder stands for $ in code that is parsed.
const placeholder = "node_"

// fill replaces the placeholders in code.
func (s *site) fill(code ast.Node) (err error) {
	astutil.Apply(code, func(c *astutil.Cursor) bool {
		n := c.Node()
		whole, alone := n.(*ast.ExprStmt)
		if alone {
			n = whole.X
		}
		id, ok := n.(*ast.Ident)
		if !ok || !strings.HasPrefix(id.Name, placeholder) {
			return true
		}
		by, ok := s.part(strings.TrimPrefix(id.Name, placeholder))
		if !ok {
			err = fmt.Errorf("there is no $%s", strings.TrimPrefix(id.Name, placeholder))
			return false
		}
		if _, statement := by.(ast.Stmt); alone && !statement {
			return true // the expression is replaced next
		}
		c.Replace(by)
		return false
	}, nil)
	return err
}

// part returns the node that $of stands for.
func (s *site) part(of string) (n ast.Node, ok bool) {
	decl := s.path[0].(*ast.FuncDecl)
	fields := decl.Type.Params
	number, result := strings.CutPrefix(of, "r")
	if result {
		fields = decl.Type.Results
	}
	if i, err := strconv.Atoi(number); err == nil {
		if i == 0 {
			i, fields = 1, decl.Recv
		}
		names := namesIn(fields)
		if i > len(names) {
			return nil, false
		}
		return names[i-1], true
	}
	n = s.node()
	for _, side := range of {
		x, y := sides(n)
		if n = x; side == 'y' {
			n = y
		}
	}
	return n, n != nil
}

// sides returns $x and $y of a node.
func sides(n ast.Node) (x, y ast.Expr) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return n.X, n.Y
	case *ast.IndexExpr:
		return n.X, n.Index
	case *ast.SelectorExpr:
		return n.X, nil
	case *ast.AssignStmt:
		return n.Lhs[0], n.Rhs[0]
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.SelectorExpr); ok {
			x = f.X
		}
		if len(n.Args) > 0 {
			y = n.Args[0]
		}
	}
	return x, y
}

// drop removes the operand, argument, assignment or statement that the node is in.
func (s *site) drop() error {
	for ; len(s.path) > 1; s.path = s.path[:len(s.path)-1] {
		n := s.node()
		same := func(e ast.Expr) bool { return e == n }
		switch around := s.path[len(s.path)-2].(type) {
		case *ast.BinaryExpr:
			switch around.Op {
			case token.LAND, token.LOR, token.ADD, token.SUB, token.MUL, token.QUO:
				rest := around.X
				if rest == n {
					rest = around.Y
				}
				return s.replace(around, rest)
			}
		case *ast.CallExpr:
			if i := slices.IndexFunc(around.Args, same); i >= 0 {
				around.Args = slices.Delete(around.Args, i, i+1)
				return nil
			}
		case *ast.AssignStmt:
			i := max(slices.IndexFunc(around.Lhs, same), slices.IndexFunc(around.Rhs, same))
			if len(around.Lhs) > 1 && len(around.Lhs) == len(around.Rhs) {
				around.Lhs, around.Rhs = slices.Delete(around.Lhs, i, i+1), slices.Delete(around.Rhs, i, i+1)
				return nil
			}
		case *ast.IfStmt:
			if around.Init == n {
				around.Init = nil
				return nil
			}
		case *ast.FuncDecl:
			return errors.New("it cannot be dropped")
		}
		if n, ok := n.(ast.Stmt); ok { // its variables are still used
			return s.replace(n, &ast.IfStmt{Cond: ast.NewIdent("false"), Body: &ast.BlockStmt{List: []ast.Stmt{n}}})
		}
	}
	return errors.New("there is nothing to drop")
}

// toStatement goes outwards to the statement around the node.
func (s *site) toStatement() {
	for len(s.path) > 2 {
		if _, ok := s.node().(ast.Stmt); ok {
			return
		}
		s.path = s.path[:len(s.path)-1]
	}
}

// replace replaces a node by others.
func (s *site) replace(old ast.Node, by ...ast.Node) (err error) {
	astutil.Apply(s.path[0], func(c *astutil.Cursor) bool {
		switch {
		case c.Node() != old:
			return true
		case len(by) == 1:
			c.Replace(by[0])
		case c.Index() < 0:
			err = errors.New("there is no room for several statements")
		default:
			for _, n := range by {
				c.InsertBefore(n)
			}
			c.Delete()
		}
		return false
	}, nil)
	return err
}
