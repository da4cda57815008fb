package access

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Role is a set of allowed actions. Each role includes those before it. The zero value allows nothing.
type Role int

// The roles.
const (
	Read  Role = iota + 1 // see timers, events and dead letters
	Write                 // make, change, cancel, pause, resume and trigger timers; resend dead letters
	Admin                 // others' work: jobs, which select timers by a filter, and stopping them
)

// String is the role's name in the file of callers.
func (r Role) String() string {
	if r < Read || r > Admin {
		return "none"
	}
	return roles()[r-Read]
}

func roles() []string { return []string{"read", "write", "admin"} }

// ParseRole reads a role's name.
func ParseRole(name string) (Role, error) {
	i := slices.Index(roles(), name)
	if i < 0 {
		return 0, fmt.Errorf("role is %q, needs one of %s", name, strings.Join(roles(), ", "))
	}
	return Read + Role(i), nil
}

// Grant is one right: a role for the timers of some request topics whose IDs begin with a prefix.
type Grant struct {
	Role     Role
	Topic    string // a name; prefix*, for all that begin with it; or * for all
	IDPrefix string // empty for all IDs
}

// calendarTopic begins the topic that stands for a calendar in grants and in checks. No topic of Kafka has a colon.
const calendarTopic = "calendar:"

// CalendarTopic returns the topic that stands for a calendar in [May]. Its roles are Read, and Admin to put and delete
// it, because that changes all timers that name it.
func CalendarTopic(name string) string { return calendarTopic + name }

// Calendars returns the calendars that the grant is about: a name, prefix* or *; false if it is about none.
func (g Grant) Calendars() (names string, ok bool) {
	if g.Topic == "*" {
		return g.Topic, g.IDPrefix == ""
	}
	return strings.CutPrefix(g.Topic, calendarTopic)
}

// Covers reports whether the grant is about a topic. The empty topic stands for the whole service, so that only *
// covers it.
func (g Grant) Covers(topic string) bool {
	if strings.HasPrefix(topic, calendarTopic) {
		if _, ok := g.Calendars(); !ok {
			return false // c* is about topics
		}
	}
	if prefix, ok := strings.CutSuffix(g.Topic, "*"); ok {
		return strings.HasPrefix(topic, prefix)
	}
	return topic == g.Topic
}

// Caller is the caller on whose behalf a call is made.
type Caller struct {
	Name string // in the file; a person who matches several callers has all their names, joined by +
	// User is the person, if a person made the call and it arrived at this instance; else empty.
	User string
	// Forwarded means that another instance asks in the caller's name. The call must be answered here: a call is
	// forwarded only once.
	Forwarded bool

	grants []Grant
}

// share names the part of a [Pool] that c's calls count against. It is the first of c's callers in the file, whose
// limiter limits the calls, too. If each set of groups had a part of its own, the people of one tenant would have as
// many parts as they have sets of groups.
func (c *Caller) share() string {
	first, _, _ := strings.Cut(c.Name, joined)
	return first
}

// anonymous is the caller of an open API. No file can name it.
const anonymous = "anonymous"

// Anonymous returns the caller of an open API, which may do everything.
func Anonymous() Caller {
	return Caller{Name: anonymous, grants: []Grant{{Role: Admin, Topic: "*"}}}
}

// call is the state of a call in progress.
type call struct {
	caller  Caller
	request string // its ID
	// current returns the grants in the file now. Jobs outlive their call and streams are long, so the grants at the
	// start of the call are not enough. nil: they are.
	current func() []Grant
	// memory is the call's reservation of the guard's memory, for its body and response; nil: there is no guard.
	memory *Reservation
	broken atomic.Pointer[Problem] // the reason why the body cannot be read; nil: it can

	mu        sync.Mutex // guards the fields below: handlers may ask from several goroutines
	topic, id string     // of the first check
	asked     int        // number of checks

	trace string // ID of the trace that the call is part of; "" if it has no span

	timers           []string // IDs of timers for which requests were written, made loggable
	timerBytes, more int      // their bytes, and how many further IDs there are
}

func (c *call) note(topic, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == 0 {
		c.topic, c.id = topic, id
	}
	c.asked++
}

type callKey struct{}

// WithCaller returns a context with the rights of a caller. [Guard.Wrap] does this for each call.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return withCall(ctx, &call{caller: c})
}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// CallerOf returns the caller of ctx's call; false if there is none.
func CallerOf(ctx context.Context) (Caller, bool) {
	if c := callOf(ctx); c != nil {
		return c.caller, true
	}
	return Caller{}, false
}

// grants returns the caller's current rights.
func (c *call) grants() []Grant {
	if c.current != nil {
		return c.current()
	}
	return c.caller.grants
}

// Grants returns the current rights of the caller of ctx; none if there is no caller.
func Grants(ctx context.Context) []Grant {
	if c := callOf(ctx); c != nil {
		return slices.Clone(c.grants())
	}
	return nil
}

// May returns nil if the caller of ctx has a role for a timer of a request topic, otherwise a *[Problem] with the
// status 403. id may also be a prefix, which means all IDs that begin with it; an empty one means the whole topic. An
// empty topic means the whole service. The audit line names the topic and the ID of the first check. The current
// rights count, however long ago the call was made.
func May(ctx context.Context, role Role, topic, id string) error {
	return may(ctx, role, topic, id, right(topic, id), func(g Grant) bool { return strings.HasPrefix(id, g.IDPrefix) })
}

// MaySome checks whether the caller has a right to any IDs of a request topic at all. A call that names IDs in its
// body needs that before the body is read; May then checks each ID.
func MaySome(ctx context.Context, role Role, topic string) error {
	return may(ctx, role, topic, "", fmt.Sprintf("any ID of topic %q", topic), func(Grant) bool { return true })
}

// may looks for a grant with sufficient IDs. right describes the missing right if there is none.
func may(ctx context.Context, role Role, topic, id, right string, suffices func(Grant) bool) error {
	c := callOf(ctx)
	if c == nil {
		return NewProblem(http.StatusForbidden, ReasonForbidden, "the call has no caller")
	}
	c.note(topic, id)
	if slices.ContainsFunc(c.grants(), func(g Grant) bool { return g.Role >= role && g.Covers(topic) && suffices(g) }) {
		return nil
	}
	detail := fmt.Sprintf("caller %q has no right to %s %s", c.caller.Name, role, right)
	if topic != "" { // for the whole service, right says so
		detail += ": a grant in api-users gives it"
	}
	return NewProblem(http.StatusForbidden, ReasonForbidden, detail)
}

// right describes a right to an ID of a topic.
func right(topic, id string) string {
	calendar, ok := strings.CutPrefix(topic, calendarTopic)
	switch {
	case ok:
		return fmt.Sprintf("the calendar %q", calendar)
	case topic == "":
		return "the whole service: that needs a grant for the topic '*'"
	case id == "":
		return fmt.Sprintf("all of topic %q", topic)
	}
	return fmt.Sprintf("%q on topic %q", id, topic)
}
