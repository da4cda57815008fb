package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
)

// self returns the rights of the page's caller; nil if they are not known.
func (a *asker) self() *api.Caller {
	if !a.known {
		a.known = true
		var c api.Caller
		if a.ask(call{path: []string{"caller"}}, &c) == nil {
			a.caller = &c
		}
	}
	return a.caller
}

// may reports whether the caller has a role for an ID, or for all IDs with a prefix. If its rights are not known, the
// API decides.
func (a *asker) may(role access.Role, topic, id string) bool {
	c := a.self()
	return c == nil || slices.ContainsFunc(c.Rights, func(r api.Right) bool {
		has, err := access.ParseRole(r.Role)
		return err == nil && has >= role && r.Topic == topic && strings.HasPrefix(id, r.Prefix)
	})
}

// narrow reports whether the caller has rights to some IDs, and to no request topic as a whole.
func (a *asker) narrow() bool {
	c := a.self()
	return c != nil && len(c.Rights) > 0 && !slices.ContainsFunc(c.Rights,
		func(r api.Right) bool { return r.Prefix == "" })
}

// within returns the prefix of IDs that a page shows: the requested one, else, if the caller may see only a part of
// the topic, the first prefix that it has a right to.
func (a *asker) within(topic, prefix string) string {
	c := a.self()
	if prefix != "" || c == nil {
		return prefix
	}
	// A right to all IDs has no prefix and comes first.
	if i := slices.IndexFunc(c.Rights, func(r api.Right) bool { return r.Topic == topic }); i >= 0 {
		return c.Rights[i].Prefix
	}
	return ""
}

// homePage is the overview of a caller with rights to some IDs.
type homePage struct {
	Rights []homeRow
	On     *homeRow // the row that Due is about
	Due    duePanel
}

// homeRow is a right, and the number of pending timers below it.
type homeRow struct {
	api.Right
	Count *api.TimerCount
	Wrong *api.Problem // instead of Count
}

// home shows the caller its rights, and the number of pending timers below each. The caller has at least one.
func (c *Console) home(v *visit) error {
	p := &homePage{}
	for _, r := range v.self().Rights {
		row := homeRow{Right: r}
		var n api.TimerCount
		q := url.Values{"prefix": {r.Prefix}, "limit": {strconv.Itoa(countedOfEach)}}
		if err := v.ask(call{path: []string{"topics", r.Topic, "timers", "count"}, query: q}, &n); err != nil {
			row.Wrong = asProblem(err)
		} else {
			row.Count = &n
		}
		p.Rights = append(p.Rights, row)
	}
	i := slices.IndexFunc(p.Rights,
		func(r homeRow) bool { return r.Topic == v.query("topic") && r.Prefix == v.raw("prefix") })
	p.On = &p.Rights[max(0, i)]
	p.Due = v.due(p.On.Topic, p.On.Prefix, cmp.Or(v.query("ahead"), "hour"))
	return v.show(nil, "home", "Overview", p)
}
