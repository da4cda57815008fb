package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kafka/calendars"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// Calendars are the exclusion calendars of the group. Outside unit tests they are a calendars.Writer.
type Calendars interface {
	// CaughtUp waits until Now has every calendar that was put before the call.
	CaughtUp(ctx context.Context) error
	Now() *calendars.Set
	// Write puts a calendar, or deletes it if text is nil. It returns once Now has it. Unless the error is
	// calendars.ErrUnknown, nothing was written.
	Write(ctx context.Context, name string, text []byte) error
}

// CalendarInfo is a calendar in a list.
type CalendarInfo struct {
	Name    string    `json:"name"`
	Changed time.Time `json:"changed" doc:"When it was put."`
	Bytes   int       `json:"bytes" doc:"Size of its rules."`
	Mine    bool      `json:"mayChange" doc:"The caller may put and delete it."`
}

// CalendarList are calendars.
type CalendarList struct {
	Calendars []CalendarInfo `json:"calendars" nullable:"false" doc:"Those that the caller may read, by name."`
}

// CalendarResult is the result of a change of a calendar.
type CalendarResult struct {
	Name   string `json:"name"`
	Result string `json:"result" enum:"created,replaced,deleted"`
}

// CalendarRules documents the rules of a calendar, which are calendar.Rules.
type CalendarRules struct {
	Zone   string   `json:"zone,omitempty" doc:"IANA name of the zone of all rules; if absent, UTC."`
	Dates  []string `json:"dates,omitempty" doc:"2026-12-25, or both ends of a span: 2026-12-27/2027-01-01."`
	Yearly []string `json:"yearly,omitempty" doc:"Month and day: 05-01."`
	Weekly []string `json:"weekly,omitempty" doc:"sat, or mon-wed."`
	Hours  []string `json:"hours,omitempty" doc:"mon-fri 18:00-08:00, or hours alone for all days. An end before its begin is on the next day; the end itself is not excluded."`
}

// calendarsOf has the operations on calendars.
type calendarsOf struct {
	*common
	all Calendars
}

// OneCalendar names a calendar.
type OneCalendar struct {
	Name string `path:"name" doc:"Letters, digits, dots, _ and -, 64 at most."`
}

const calendarPath = "/v1/calendars/{name}"

func (co *calendarsOf) register(h huma.API) {
	list := operation("calendars", http.MethodGet, "/v1/calendars", "listCalendars", "List the calendars")
	reads(h, list, func(ctx context.Context, _ *struct{}) (out CalendarList, err error) {
		set, err := co.now(ctx)
		if err != nil {
			return out, err
		}
		out.Calendars = []CalendarInfo{}
		for _, name := range set.Names() {
			if c, ok := set.Get(name); ok && co.may(ctx, access.Read, name) == nil {
				out.Calendars = append(out.Calendars, CalendarInfo{name, time.UnixMilli(c.Changed).UTC(), len(c.Text),
					co.may(ctx, access.Admin, name) == nil})
			}
		}
		return out, nil
	})
	get := operation("calendars", http.MethodGet, calendarPath, "getCalendar", "See the rules of a calendar",
		"As they were put, byte for byte.")
	get.Parameters = []*huma.Param{header("If-None-Match",
		"ETags of the rules as the caller has them: 304 if they are still so.")}
	describe[CalendarRules](h, &get, map[string]string{"200": "The rules."})
	get.Responses["304"] = &huma.Response{Description: "They are as one of the ETags of If-None-Match says."}
	handle(h, get, co.get)
	co.registerChanges(h)
}

// shownCalendar is the response to getCalendar.
type shownCalendar struct {
	Status int
	Type   string `header:"Content-Type"`
	ETag   string `header:"ETag" doc:"Of the rules. If-None-Match takes it."`
	Body   []byte
}

func (co *calendarsOf) get(ctx context.Context, in *OneCalendar) (*shownCalendar, error) {
	if err := co.may(ctx, access.Read, in.Name); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	set, err := co.now(ctx)
	if err != nil {
		return nil, err
	}
	c, ok := set.Get(in.Name)
	if !ok {
		return nil, noCalendar(in.Name)
	}
	sum := sha256.Sum256(c.Text)
	out := &shownCalendar{http.StatusOK, jsonType, `"` + hex.EncodeToString(sum[:16]) + `"`, c.Text}
	if isAmong(out.ETag, headersOf(ctx).Values("If-None-Match")) {
		out.Status, out.Body = http.StatusNotModified, nil
	}
	return out, nil
}

func noCalendar(name string) error {
	return problem(http.StatusNotFound, ReasonNotFound, "there is no calendar %.80q", name)
}

func (co *calendarsOf) registerChanges(h huma.API) {
	put := operation("calendars", http.MethodPut, calendarPath, "putCalendar", "Put the rules of a calendar",
		"The body is the rules as JSON. What any of them names is excluded. An answered PUT holds for every request "+
			"that is written after it; pending timers follow.",
		"400 bad-calendar: its detail names the rule that is wrong.")
	put.MaxBodyBytes = calendar.MaxRulesBytes
	co.change(h, put, true, func(ctx context.Context, name string, text []byte) (int, string, error) {
		set, err := co.now(ctx)
		if err != nil {
			return 0, "", err
		}
		if err = set.Takes(name, text); err == nil {
			err = lossless(text)
		}
		if err != nil {
			return 0, "", problem(http.StatusBadRequest, ReasonBadCalendar, "%v", err)
		}
		// Equal rules are written too: those in force here may no longer be in the log.
		if _, known := set.Get(name); known {
			return http.StatusOK, "replaced", co.write(ctx, name, text)
		}
		return http.StatusCreated, "created", co.write(ctx, name, text)
	})
	documentBody[CalendarRules](h, h.OpenAPI().Paths[calendarPath].Put, true)
	remove := operation("calendars", http.MethodDelete, calendarPath, "deleteCalendar", "Delete a calendar",
		"Timers that name it go on, and it excludes nothing any more.")
	co.change(h, remove, false, func(ctx context.Context, name string, _ []byte) (int, string, error) {
		set, err := co.now(ctx)
		if err != nil {
			return 0, "", err
		}
		if _, known := set.Get(name); !known {
			return 0, "", noCalendar(name)
		}
		return http.StatusOK, "deleted", co.write(ctx, name, nil)
	})
}

// changedCalendar is the response to a change.
type changedCalendar struct {
	Status int
	Body   CalendarResult
}

// change registers an operation that changes a calendar.
func (co *calendarsOf) change(h huma.API, op huma.Operation, created bool,
	do func(ctx context.Context, name string, text []byte) (status int, result string, err error)) {
	before(&op, func(c huma.Context) error {
		if c.Header("If-Match") != "" || c.Header("If-None-Match") != "" {
			return invalid("a change of a calendar takes no conditions: leave out If-Match and If-None-Match")
		}
		return co.may(c.Context(), access.Admin, c.Param("name"))
	})
	others := map[string]string{}
	if created {
		others["201"] = "There was no calendar of that name."
	}
	describe[CalendarResult](h, &op, others)
	run := func(ctx context.Context, name string, text []byte) (*changedCalendar, error) {
		ctx, cancel := context.WithTimeout(ctx, produceTimeout)
		defer cancel()
		status, result, err := do(ctx, name, text)
		return &changedCalendar{status, CalendarResult{name, result}}, err
	}
	if !created {
		handle(h, op, func(ctx context.Context, in *OneCalendar) (*changedCalendar, error) {
			return run(ctx, in.Name, nil)
		})
		return
	}
	handle(h, op, func(ctx context.Context, in *struct {
		OneCalendar
		RawBody []byte `contentType:"application/octet-stream"`
	}) (*changedCalendar, error) {
		return run(ctx, in.Name, append([]byte{}, in.RawBody...)) // its buffer is reused after the call
	})
}

// may returns nil if the caller may read or change a calendar.
func (co *calendarsOf) may(ctx context.Context, role access.Role, name string) error {
	return co.topics.may(ctx, role, access.CalendarTopic(name), "")
}

// now returns the calendars, with all that were put before the call.
func (co *calendarsOf) now(ctx context.Context) (*calendars.Set, error) {
	if co.all == nil {
		return nil, problem(http.StatusNotFound, ReasonNoPath, "this instance has no calendars")
	}
	if err := co.all.CaughtUp(ctx); err != nil {
		return nil, stuckFor(ReasonKafka, "the calendars in Kafka cannot be read now: "+err.Error())
	}
	return co.all.Now(), nil
}

// readable returns the calendars, if the caller may read those with some names, with commas between them.
func (co *calendarsOf) readable(ctx context.Context, names string) (calendar.Calendars, error) {
	if co.all == nil {
		return nil, nil //nolint:nilnil // there are none
	}
	for name := range strings.SplitSeq(names, ",") {
		if err := co.may(ctx, access.Read, strings.TrimSpace(name)); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return co.now(ctx)
}

func (co *calendarsOf) write(ctx context.Context, name string, text []byte) error {
	err := co.all.Write(ctx, name, text)
	switch {
	case errors.Is(err, calendars.ErrUnknown), errors.Is(err, context.DeadlineExceeded):
		return problem(http.StatusServiceUnavailable, ReasonUnknownOutcome, "%v; make the call again", err)
	case err != nil:
		return stuckFor(ReasonNotWritten, err.Error())
	}
	return nil
}
