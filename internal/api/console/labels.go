package console

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/timer"
)

// labelFilter is the filter by labels of a search, as it was typed: NAME=VALUE, NAME!=VALUE or NAME, with commas
// between conditions that must all hold.
type labelFilter struct{ Label string }

// labelFilter returns the filter in the page's address. As in the API, an address may have the parameter several times.
func (v *visit) labelFilter() labelFilter {
	var all []string
	for _, text := range v.r.URL.Query()["label"] {
		if text = strings.TrimSpace(text); text != "" {
			all = append(all, text)
		}
	}
	return labelFilter{strings.Join(all, ", ")}
}

// fault returns what is wrong with the filter; empty if nothing is.
func (l *labelFilter) fault() string {
	if l.Label == "" {
		return ""
	}
	_, fault := timer.ParseSelector([]string{l.Label})
	return fault
}

// BadLabel reports whether the filter cannot be read.
func (l *labelFilter) BadLabel() bool { return l.fault() != "" }

// labels returns the filter as the API takes it, empty if there is none, or what is wrong with it.
func (l *labelFilter) labels() (string, error) {
	if fault := l.fault(); fault != "" {
		return "", fmt.Errorf("labels: %s", fault)
	}
	return l.Label, nil
}

// and returns the filter with one more condition.
func (l *labelFilter) and(label string) labelFilter {
	var all []string
	for one := range strings.SplitSeq(l.Label, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	if !slices.Contains(all, label) {
		all = append(all, label)
	}
	return labelFilter{strings.Join(all, ", ")}
}

// labelLink is a label of a timer, and leads to the timers that have it too.
type labelLink struct {
	Text string
	Link template.URL
}

// labelLinks returns the labels of a timer in the order of their names. to returns the address for one.
func labelLinks(labels map[string]string, to func(label string) template.URL) (all []labelLink) {
	sorted, _ := timer.LabelsOf(labels) // they are a timer's
	for name, value := range sorted.All() {
		text := name + "=" + value
		all = append(all, labelLink{text, to(text)})
	}
	return all
}
