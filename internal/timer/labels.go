package timer

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of labels.
const (
	MaxLabels     = 16  // of one timer
	MaxLabelBytes = 512 // names and values of them together
)

// Labels are the labels of a timer in their canonical form: name=value, with commas between them, by name in the order
// of bytes. The empty text has none. A name is not empty, and is there once.
type Labels string

// Label is one label.
type Label struct{ Name, Value string }

// ParseLabels reads labels in any order, as requests have them. Spaces around names and values do not count. fault says
// what is wrong, and is empty if nothing is.
func ParseLabels(text string) (l Labels, fault string) {
	var all []Label
	for one := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(one, "=")
		if !ok && strings.Trim(one, " ") != "" {
			return "", fmt.Sprintf("%.40q has no =", one)
		}
		if all = append(all, Label{name, value}); len(all) > MaxLabels {
			break
		}
	}
	return MakeLabels(all)
}

// MakeLabels is ParseLabels for labels that are given one by one. It reorders them.
func MakeLabels(all []Label) (l Labels, fault string) {
	if len(all) > MaxLabels {
		return "", fmt.Sprintf("a timer has %d labels at most", MaxLabels)
	}
	size := 0
	for i := range all {
		one := &all[i]
		one.Name, one.Value = strings.Trim(one.Name, " "), strings.Trim(one.Value, " ")
		size += len(one.Name) + len(one.Value)
		if fault := one.fault(); fault != "" {
			return "", fault
		}
	}
	if size > MaxLabelBytes {
		return "", fmt.Sprintf("names and values have %d bytes together, and may have %d", size, MaxLabelBytes)
	}
	slices.SortFunc(all, func(a, b Label) int { return strings.Compare(a.Name, b.Name) })
	var b strings.Builder
	for i, one := range all {
		if i > 0 {
			if one.Name == all[i-1].Name {
				return "", fmt.Sprintf("%.40q is given twice", one.Name)
			}
			b.WriteByte(',')
		}
		b.WriteString(one.Name + "=" + one.Value)
	}
	return Labels(b.String()), ""
}

// LabelsOf is MakeLabels for labels by name.
func LabelsOf(labels map[string]string) (l Labels, fault string) {
	all := make([]Label, 0, len(labels))
	for name, value := range labels {
		all = append(all, Label{name, value})
	}
	return MakeLabels(all)
}

// maxLabelsHeader is the length of the longest name of a header that labels are put into.
const maxLabelsHeader = 256

// LabelsHeaderFault says why labels cannot be put into a header with that name; empty if they can.
func LabelsHeaderFault(name string) string {
	const ours, theirs = "timer-", "waterclock-"
	lower := strings.ToLower(name)
	switch {
	case name == "", len(name) > maxLabelsHeader:
		return fmt.Sprintf("the name of a header has 1 to %d bytes, not %d", maxLabelsHeader, len(name))
	case strings.HasPrefix(lower, ours), strings.HasPrefix(lower, theirs), IsTraceContext(lower):
		return fmt.Sprintf("the name %q is reserved", name)
	}
	return ""
}

// fault says what is wrong with a label without spaces around it; empty: nothing.
func (l *Label) fault() string {
	switch {
	case l.Name == "":
		return "a label has no name"
	case strings.ContainsAny(l.Name, ",=!") || strings.ContainsFunc(l.Name, unicode.IsControl):
		return fmt.Sprintf("the name %.40q has one of , = ! or a control character", l.Name)
	case strings.Contains(l.Value, ",") || strings.ContainsFunc(l.Value, unicode.IsControl):
		return fmt.Sprintf("the value of %.40q has a comma or a control character", l.Name)
	case !utf8.ValidString(l.Name) || !utf8.ValidString(l.Value):
		return fmt.Sprintf("%.40q is not UTF-8", l.Name)
	}
	return ""
}

// All returns the names and values in order.
func (l Labels) All() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for rest, more := string(l), l != ""; more; {
			var one string
			one, rest, more = strings.Cut(rest, ",")
			if name, value, _ := strings.Cut(one, "="); !yield(name, value) {
				return
			}
		}
	}
}

// Get returns the value of a label, and whether there is one of that name.
func (l Labels) Get(name string) (value string, ok bool) {
	for other, value := range l.All() {
		if other == name {
			return value, true
		}
	}
	return "", false
}

// Map returns the labels by name; nil if there are none.
func (l Labels) Map() map[string]string {
	if l == "" {
		return nil
	}
	all := make(map[string]string)
	for name, value := range l.All() {
		all[name] = value
	}
	return all
}

// own returns the labels in memory of their own.
func (l Labels) own() Labels { return Labels(strings.Clone(string(l))) }

// canonical reports whether the text has the form that Labels describe. Later versions may allow more labels.
func (l Labels) canonical() bool {
	last := ""
	for rest, more := string(l), true; more; {
		var one string
		one, rest, more = strings.Cut(rest, ",")
		name, _, ok := strings.Cut(one, "=")
		if !ok || name <= last {
			return false
		}
		last = name
	}
	return true
}

// Selector chooses timers by their labels: name=value, name!=value or name, with commas between them. All conditions
// must hold. The last one holds for any value; name!=value also holds without such a label. The empty text chooses all.
type Selector string

// MaxSelectorBytes bounds a selector: it may be part of a URL.
const MaxSelectorBytes = 2 * MaxLabelBytes

// ParseSelector reads conditions. Each text may have several. fault says what is wrong.
func ParseSelector(texts []string) (s Selector, fault string) {
	var all []string
	for _, text := range texts {
		for one := range strings.SplitSeq(text, ",") {
			name, value, valued := strings.Cut(one, "=")
			name, not := strings.CutSuffix(name, "!")
			l := Label{strings.Trim(name, " "), strings.Trim(value, " ")}
			if fault := l.fault(); fault != "" || not && !valued {
				return "", fmt.Sprintf("%.80q is not a condition on a label: send NAME=VALUE, NAME!=VALUE or NAME", one)
			}
			switch {
			case not:
				l.Name += "!=" + l.Value
			case valued:
				l.Name += "=" + l.Value
			}
			all = append(all, l.Name)
		}
	}
	if s = Selector(strings.Join(all, ",")); len(all) > MaxLabels || len(s) > MaxSelectorBytes {
		return "", fmt.Sprintf("there are %d conditions on labels, in %d bytes: send up to %d, in %d bytes", len(all),
			len(s), MaxLabels, MaxSelectorBytes)
	}
	return s, ""
}

// Match reports whether all conditions hold. It allocates nothing: a scan asks it for each timer.
func (s Selector) Match(l Labels) bool {
	for rest, more := string(s), s != ""; more; {
		var one string
		one, rest, more = strings.Cut(rest, ",")
		name, want, valued := strings.Cut(one, "=")
		name, not := strings.CutSuffix(name, "!")
		value, ok := l.Get(name)
		if valued {
			ok = ok && value == want
		}
		if ok == not {
			return false
		}
	}
	return true
}
