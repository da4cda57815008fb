// Package yamltext explains in plain words what is wrong with a YAML file, and takes scalars as they are written:
//
//	line, key, need := yamltext.Fault(err) // of the YAML library
package yamltext

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// ErrNotScalar says that a node is a list or a mapping.
var ErrNotScalar = errors.New("not a scalar")

// UTF8 returns a file without the byte order mark that editors on Windows write before UTF-8. If the mark is that of
// UTF-16, need describes the encoding that the file needs.
func UTF8(data []byte) (text []byte, need string) {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return nil, "text in UTF-8, not in UTF-16: save it again with that encoding"
	}
	return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), ""
}

// Scalar returns the text of a scalar as it is written: 007 is neither 7 nor a number.
func Scalar(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	}
	return "", ErrNotScalar
}

// Fault explains an error of the YAML library: the line (0 if unknown), the key that the fault belongs to ("" if
// none), and what the key needs.
func Fault(err error) (line int, key, need string) {
	var fault yaml.Error
	if !errors.As(err, &fault) {
		return 0, "", fmt.Sprintf("well-formed YAML: %v", err)
	}
	t := fault.GetToken()
	if t != nil && t.Position != nil {
		line = t.Position.Line
	}
	key = KeyOf(t)
	switch fault := fault.(type) {
	case *yaml.UnexpectedNodeTypeError:
		return line, key, fmt.Sprintf("%s, not %s", kind(fault.Expected), kind(fault.Actual))
	case *yaml.UnknownFieldError:
		return line, t.Value, "to be a known key"
	}
	if message := fault.GetMessage(); !strings.Contains(message, alreadyDefined) || t == nil {
		return line, key, syntax(message)
	}
	return line, t.Value, syntax(alreadyDefined)
}

// alreadyDefined is the library's message about a duplicate key.
const alreadyDefined = "already defined"

// syntax describes what a malformed file needs.
func syntax(message string) string {
	for _, fault := range []struct{ has, need string }{
		{"sequence end token", "a ] at the end of its list"},
		{"mapping end token", "a } at its end"},
		{"mapping value is not allowed", "quotes around a value that has a colon"},
		{"value is not allowed in this context", "one value, and the next key on a line of its own"},
		{"'\t' that cannot start", "spaces to indent with, not a tab"},
		{"could not find end character of", "a quote at the end of its text"},
		{"non-map value is specified", "a colon and a value behind the key"},
		{alreadyDefined, "to be given once: it stands further up already"},
	} {
		if strings.Contains(message, fault.has) {
			return fault.need
		}
	}
	return "well-formed YAML: " + message
}

// KeyOf returns the key before a token.
func KeyOf(t *token.Token) string {
	for ; t != nil; t = t.Prev {
		if t.Type == token.MappingValueType && t.Prev != nil && t.Prev.Type != token.SequenceEndType &&
			t.Prev.Type != token.MappingEndType {
			return t.Prev.Value
		}
	}
	return ""
}

// kind returns the name of a node type.
func kind(n ast.NodeType) string {
	switch n {
	case ast.MappingType, ast.MappingValueType:
		return "keys with values, as in KEY: VALUE"
	case ast.SequenceType:
		return "a list"
	case ast.StringType, ast.LiteralType:
		return "a text"
	case ast.IntegerType, ast.FloatType, ast.InfinityType, ast.NanType:
		return "a number"
	case ast.BoolType:
		return "true or false"
	case ast.NullType:
		return "nothing"
	}
	return "that"
}
