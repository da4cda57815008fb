package simulation

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/format"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// change is a mutation of one node in the syntax of a function. It names functions, methods, fields, types and
// constants of the product, never a variable. Formatting, comments and other statements do not matter to it.
type change struct {
	dir string // of the package
	fn  string // a function, or Type.Method
	at  string // steps to the node
	do  edit   // what becomes of the node
}

// The steps of a change go inwards from the function, separated by commas. Each must find exactly one node; of matches
// inside each other only the outermost counts. Without any step the node is the function itself. A step is a kind and
// the names that the node mentions:
//
//	if N…, for N…, case N…                     names in the condition, or in the statement before it
//	assign N…, return N…, send N…, defer N…    statements
//	call F N…                                  a call of the function or method F
//	&& N…, += N…, ++ N…                        operators
//	N N…                                       N itself: x.N as a whole; the value, if N is a key in a literal
//	arg 2                                      the second argument of the call that the step before found
//	..                                         the if, for or case around the node that the step before found
//	body                                       the body of the function
//
// A name after ! must not be mentioned. Literals are names too. Variables are not, and whatever a function literal
// contains is not mentioned by the statement around it.

// edit is the code that replaces a node, or drop. In the code, $ is the node, and $x and $y are its two sides: the
// operands, the first target and value of an assignment, the receiver and first argument of a call, x[y], x.f. They
// combine: $yx is the x of $y. $0 is the function's receiver, $1 its first parameter, $r1 its first result.
//
// An expression in place of an if, for, case or return replaces its condition, what it ranges over, or its results.
// Statements in place of an expression replace the statement around it, which then is $.
type edit string

const (
	never  edit = "$ && false"
	always edit = "$ || true"
	// drop removes the innermost thing around the node that can be missing: an operand, an argument, one of several
	// assignments, or a statement.
	drop edit = "drop it"
)

// reader returns the text of a file.
type reader func(path string) ([]byte, error)

// plant makes changes one after another. It returns the new texts of the files that it has changed, by path.
func plant(root string, read reader, changes []change) (map[string][]byte, error) {
	planted := make(map[string][]byte)
	now := func(path string) ([]byte, error) {
		if text, ok := planted[path]; ok {
			return text, nil
		}
		return read(path)
	}
	for _, c := range changes {
		path, text, decl, err := c.find(root, now)
		if err == nil {
			planted[path], err = c.apply(text, decl)
		}
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", c.dir, c.fn, err)
		}
	}
	return planted, nil
}

// find finds the function and the file that it is in.
func (c *change) find(root string, read reader) (path string, text []byte, decl *ast.FuncDecl, err error) {
	in, err := build.ImportDir(filepath.Join(root, c.dir), 0)
	if err != nil {
		return "", nil, nil, err
	}
	for _, name := range in.GoFiles {
		path = filepath.Join(in.Dir, name)
		if text, err = read(path); err != nil {
			return "", nil, nil, err
		}
		if !bytes.Contains(text, []byte(c.fn[strings.Index(c.fn, ".")+1:])) {
			continue // cheaper than parsing it
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return "", nil, nil, err
		}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && nameOf(d) == c.fn {
				return path, text, d, nil
			}
		}
	}
	return "", nil, nil, errors.New("there is no such function")
}

// nameOf returns the name of a function as changes have it.
func nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of := d.Recv.List[0].Type
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	return fmt.Sprint(of, ".", d.Name)
}

// apply returns the text of a file with the change made in one of its functions. That function loses its comments.
func (c *change) apply(text []byte, decl *ast.FuncDecl) ([]byte, error) {
	from, to := decl.Pos()-1, decl.End()-1 // the file is alone in its file set, whose first position is 1
	s := site{path: []ast.Node{decl}, variables: variablesOf(decl)}
	for step := range strings.SplitSeq(c.at, ",") {
		if err := s.step(strings.Fields(step)); err != nil {
			return nil, err
		}
	}
	if c.at == "" && c.do == drop {
		return bytes.Join([][]byte{text[:from], text[to:]}, nil), nil
	}
	if err := s.edit(c.do); err != nil {
		return nil, fmt.Errorf("%q in place of %q: %w", c.do, c.at, err)
	}
	b := bytes.NewBuffer(bytes.Clone(text[:from]))
	// The new file set has no positions: after the change they are out of order.
	if err := format.Node(b, token.NewFileSet(), decl); err != nil {
		return nil, err
	}
	b.Write(text[to:])
	return b.Bytes(), nil
}
