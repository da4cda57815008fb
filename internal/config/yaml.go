package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// parseYAML reads a flat mapping of settings. A value is a scalar or a list of
// scalars; scalars are taken as they are written, so that an instance ID of 007
// stays one. It returns no error but a Problem or a syntax error, which says
// where it is.
func parseYAML(path string, data []byte) (map[string]value, error) {
	var doc map[string]yamlValue
	d := yaml.NewDecoder(bytes.NewReader(data))
	err := d.Decode(&doc)
	if err == nil {
		var second any
		if more := d.Decode(&second); !errors.Is(more, io.EOF) {
			return nil, &Problem{Setting: fileSetting, Found: path, Need: "a single YAML document, not several"}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // the end: it is empty
		if bad, ok := errors.AsType[*Problem](err); ok {
			bad.Source = path
			return nil, bad
		}
		if star, line := unquotedStar(data); star != "" {
			return nil, &Problem{
				Setting: fileSetting, Found: star, Source: fmt.Sprintf("%s:%d", path, line),
				Need: fmt.Sprintf("quotes around it, as in '%s': a * that begins a value names an alias in YAML", star),
			}
		}
		return nil, fmt.Errorf("read %s: %s: %w", path, yaml.FormatError(err, false, false), ErrInvalid)
	}
	file := make(map[string]value, len(doc))
	for key, v := range doc {
		if v.node == nil {
			return nil, &Problem{Setting: key, Source: path, Need: "a value"}
		}
		scalars, isList, err := scalarsOf(v.node)
		source := fmt.Sprintf("%s:%d", path, v.node.GetToken().Position.Line)
		if err != nil {
			return nil, &Problem{Setting: key, Source: source, Need: err.Error()}
		}
		file[key] = value{items: scalars, isList: isList, source: source}
	}
	return file, nil
}

// aliasLike is a value that begins with *, which a glob does easily.
var aliasLike = regexp.MustCompile(`(?:[:\[,]|(?m:^)[ \t]*-)[ \t]*(\*[^\s,\]#]*)`)

// unquotedStar finds the first value that YAML takes for an alias, and its line.
func unquotedStar(data []byte) (star string, line int) {
	at := aliasLike.FindSubmatchIndex(data)
	if at == nil {
		return "", 0
	}
	return string(data[at[2]:at[3]]), 1 + bytes.Count(data[:at[2]], []byte("\n"))
}

// yamlValue keeps the node of a value, for the text as it is written.
type yamlValue struct{ node ast.Node }

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (v *yamlValue) UnmarshalYAML(n ast.Node) error {
	v.node = n
	return nil
}

var errNotScalar = errors.New("a single value or a list of them")

func scalarsOf(n ast.Node) (texts []string, isList bool, err error) {
	seq, isList := n.(*ast.SequenceNode)
	if !isList {
		text, err := scalarOf(n)
		return []string{text}, false, err
	}
	for _, item := range seq.Values {
		text, err := scalarOf(item)
		if err != nil {
			return nil, true, err
		}
		texts = append(texts, text)
	}
	return texts, true, nil
}

func scalarOf(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	}
	return "", errNotScalar
}
