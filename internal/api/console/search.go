package console

import (
	"cmp"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// search is the content of a search form, as it was typed. Each page has some of the fields.
type search struct {
	Topic, Prefix, From, To, Target, State, Order, Reason string
	Seen                                                  string // dead letters: empty for new ones; all; or reviewed
	labelFilter
	Topics []string

	by string // the parameter of the page that has the prefix
}

// search returns the search in the page's address.
func (v *visit) search(by string) search {
	return search{
		Topic: v.query("topic"), Prefix: v.raw(by), by: by, From: v.query("from"), To: v.query("to"),
		Target: v.query("target"), State: v.query("state"), Order: v.query("order"), Reason: v.query("reason"),
		Seen: v.query("seen"), labelFilter: v.labelFilter(),
	}
}

// typed returns the search as parameters of a page, followed by more.
func (s *search) typed(more ...string) []string {
	return append([]string{"topic", s.Topic, s.by, s.Prefix, "from", s.From, "to", s.To, "target", s.Target, "label",
		s.Label, "state", s.State, "reason", s.Reason, "seen", s.Seen}, more...)
}

// pairs is typed with instants in place of times relative to now, so that all pages have the same filter. q has the
// search as parameters of the API.
func (s *search) pairs(q url.Values, more ...string) []string {
	fixed := *s
	fixed.From = asInstant(cmp.Or(q.Get("after"), q.Get("due-after")))
	fixed.To = asInstant(cmp.Or(q.Get("before"), q.Get("due-before")))
	return fixed.typed(more...)
}

// searchOf returns the search for what a query of the API chooses, without its instants: see pairs.
func searchOf(topic string, q url.Values) search {
	return search{Topic: topic, by: "q", Prefix: q.Get("prefix"), Target: q.Get("target"), State: q.Get("state"),
		Reason: q.Get("reason"), labelFilter: labelFilter{strings.Join(q["label"], ", ")}}
}

// ofTimers returns the search as parameters of the API for timers.
func (s *search) ofTimers(now time.Time) (url.Values, error) {
	return s.filter(now, "due-after", "due-before", "prefix", s.Prefix, "target", s.Target, "state", s.State)
}

// ofLetters returns the search as parameters of the API for dead letters.
func (s *search) ofLetters(now time.Time) (url.Values, error) {
	reviewed := strconv.FormatBool(s.Seen == "reviewed")
	if s.Seen == "all" {
		reviewed = ""
	}
	return s.filter(now, "after", "before", "prefix", s.Prefix, "reason", s.Reason, "reviewed", reviewed)
}

// filter returns the instants and labels of the search as parameters of the API, with more. The error is a problem.
func (s *search) filter(now time.Time, after, before string, more ...string) (url.Values, error) {
	q := set(url.Values{}, more...)
	for _, t := range [][2]string{{after, s.From}, {before, s.To}} {
		at, err := parseWhen(t[1], now)
		if err != nil {
			return nil, bad(err.Error())
		}
		if at != nil {
			q.Set(t[0], strconv.FormatInt(at.UnixMilli(), 10))
		}
	}
	if fault := s.fault(); fault != "" {
		return nil, bad("labels: " + fault)
	}
	return set(q, "label", s.Label), nil
}

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

// fault describes the mistake in the filter. It is empty if there is none.
func (l *labelFilter) fault() string {
	if l.Label == "" {
		return ""
	}
	_, fault := timer.ParseSelector([]string{l.Label})
	return fault
}

// BadLabel reports whether the filter cannot be read.
func (l *labelFilter) BadLabel() bool { return l.fault() != "" }

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
