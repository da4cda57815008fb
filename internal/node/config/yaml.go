package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/waterclock/waterclock/internal/kit/yamltext"
)

// file is the content of a YAML file.
type file struct {
	settings map[string]*value            // by name
	tenants  map[string]map[string]*value // by request topic and name
}

// parseYAML reads a mapping of settings, which is flat except for tenants. A value is a scalar or a list of scalars.
// Scalars are taken as they are written, so an instance ID of 007 stays 007. All errors are Problems: one for each
// setting that cannot be read, or one for a syntax error, with its line.
func parseYAML(path string, data []byte) (file, error) {
	f := file{settings: make(map[string]*value)}
	doc, err := decodeYAML(path, data)
	if err != nil {
		return f, err
	}
	var errs []error
	for _, key := range sortedKeys(doc) {
		if n := doc[key].node; n != nil && key == tenantsSetting {
			f.tenants, err = sectionsOf(path, key, n, "request topics, each with settings of its own", put)
		} else {
			err = put(f.settings, key, path, key, n)
		}
		errs = append(errs, err)
	}
	return f, errors.Join(errs...)
}

// put puts the value of a setting into a map, under its key there.
func put(into map[string]*value, key, path, setting string, n ast.Node) error {
	source := path
	if n != nil {
		source = position(path, n)
	}
	if _, null := n.(*ast.NullNode); null || n == nil {
		return &Problem{Setting: setting, Source: source, Need: "a value"}
	}
	texts, isList, err := scalarsOf(setting, n)
	m, isMap := n.(ast.MapNode)
	if isMap && key == ratesSetting {
		texts, err = rateTexts(m)
		isList = true
	} else if isMap && setting != delaySetting {
		whole := setting + "-…"
		if inner, err := mappingOf(path, setting, n, ""); err == nil && len(inner) > 0 {
			whole = setting + "-" + sortedKeys(inner)[0]
		}
		return &Problem{Setting: setting, Source: source,
			Need: "a value, and no settings below it: keys are flat, as in " + whole + ": …"}
	}
	if err != nil {
		return &Problem{Setting: setting, Source: source, Need: needOf(err)}
	}
	into[key] = &value{items: texts, isList: isList, source: source}
	return nil
}

// sectionsOf reads a mapping of names to settings: tenants, or profiles. content describes it. put puts a setting.
func sectionsOf(
	path, key string, n ast.Node, content string,
	put func(into map[string]*value, setting, path, full string, n ast.Node) error,
) (map[string]map[string]*value, error) {
	sections := make(map[string]map[string]*value)
	nodes, err := mappingOf(path, key, n, content)
	errs := []error{err}
	for _, name := range sortedKeys(nodes) {
		settings, err := mappingOf(path, key+"."+name, nodes[name], "settings")
		errs = append(errs, err)
		sections[name] = make(map[string]*value, len(settings))
		for _, setting := range sortedKeys(settings) {
			errs = append(errs, put(sections[name], setting, path, key+"."+name+"."+setting, settings[setting]))
		}
	}
	return sections, errors.Join(errs...)
}

// mappingOf reads a mapping whose keys are scalars.
func mappingOf(path, setting string, n ast.Node, content string) (map[string]ast.Node, error) {
	var m ast.MapNode
	switch n := n.(type) {
	case *ast.MappingNode:
		m = n
	case *ast.MappingValueNode:
		m = n
	default:
		return nil, &Problem{Setting: setting, Source: position(path, n), Need: "to be a mapping of " + content}
	}
	nodes := make(map[string]ast.Node)
	for each := m.MapRange(); each.Next(); {
		key, err := yamltext.Scalar(each.Key())
		if err != nil {
			return nil, &Problem{Setting: setting, Source: position(path, n), Need: "keys that are names"}
		}
		nodes[key] = each.Value()
	}
	return nodes, nil
}

// needOf returns what a setting needs whose value cannot be read.
func needOf(err error) string {
	if errors.Is(err, yamltext.ErrNotScalar) {
		return "a single value or a list of them"
	}
	return err.Error()
}

func position(path string, n ast.Node) string {
	return fmt.Sprintf("%s:%d", path, n.GetToken().Position.Line)
}

func decodeYAML(path string, data []byte) (map[string]yamlValue, error) {
	var doc map[string]yamlValue
	data, need := yamltext.UTF8(data)
	if need != "" {
		return nil, &Problem{Setting: fileSetting, Found: path, Need: need}
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	err := d.Decode(&doc)
	if err == nil {
		var second any
		if more := d.Decode(&second); !errors.Is(more, io.EOF) {
			return nil, &Problem{Setting: fileSetting, Found: path, Need: "a single YAML document, not several"}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the file is empty
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
		line, key, need := yamltext.Fault(err)
		if key == "" {
			return nil, &Problem{Setting: fileSetting, Found: path, Source: fmt.Sprintf("line %d", line), Need: need}
		}
		return nil, &Problem{Setting: key, Source: fmt.Sprintf("%s:%d", path, line), Need: need}
	}
	return doc, nil
}

// aliasLike matches a value that begins with *, as globs often do.
var aliasLike = regexp.MustCompile(`(?:[:\[,]|(?m:^)[ \t]*-)[ \t]*(\*[^\s,\]#]*)`)

// unquotedStar returns the first value that YAML takes for an alias, and its line.
func unquotedStar(data []byte) (star string, line int) {
	at := aliasLike.FindSubmatchIndex(data)
	if at == nil {
		return "", 0
	}
	return string(data[at[2]:at[3]]), 1 + bytes.Count(data[:at[2]], []byte("\n"))
}

// yamlValue keeps the node of a value, for the text as it was written.
type yamlValue struct{ node ast.Node }

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (y *yamlValue) UnmarshalYAML(n ast.Node) error {
	y.node = n
	return nil
}

func scalarsOf(key string, n ast.Node) (texts []string, isList bool, err error) {
	seq, isList := n.(*ast.SequenceNode)
	if !isList {
		text, err := yamltext.Scalar(n)
		return []string{text}, false, err
	}
	for _, item := range seq.Values {
		text, err := itemOf(key, item)
		if err != nil {
			return nil, true, err
		}
		texts = append(texts, text)
	}
	return texts, true, nil
}

// itemOf is yamltext.Scalar, except that entries of delay may be mappings.
func itemOf(key string, n ast.Node) (string, error) {
	if m, ok := n.(*ast.MappingNode); ok && key == delaySetting {
		return delayText(m)
	}
	return yamltext.Scalar(n)
}
