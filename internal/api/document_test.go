package api_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// document is the part of the OpenAPI document that tests look at.
type document struct {
	Servers    []struct{ URL string }
	Components struct{ Schemas map[string]schema }
	Paths      map[string]map[string]struct {
		OperationID string
		RequestBody struct{ Content map[string]media }
		Responses   map[string]struct {
			Headers map[string]any
			Content map[string]media
		}
	}
}

type media struct {
	Schema  schema
	Example any
}

type schema struct {
	Ref                  string `json:"$ref"`
	Properties           map[string]schema
	Required             []string
	Enum                 []any
	Items                *schema
	AdditionalProperties any
}

var documented = sync.OnceValue(func() (d document) {
	a := api.New(api.Options{Topics: map[string]api.Topic{"timers": {Partitions: 1, MaxBytes: 1 << 20}},
		Logger: slog.New(slog.DiscardHandler)})
	defer a.Close()
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		panic(err)
	}
	return d
})

// hasStatus fails the test unless the document says that a call may have this status. Every call of
// the tests is checked against it.
func (d *document) hasStatus(t *testing.T, method, target string, status int) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	for template, ops := range d.Paths {
		op, some := ops[strings.ToLower(method)]
		path := regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(template), "[^/]+")
		if !some || !regexp.MustCompile("^"+path+"$").MatchString(u.EscapedPath()) ||
			strings.HasSuffix(u.EscapedPath(), "/count") && !strings.HasSuffix(template, "/count") {
			continue
		}
		if _, is := op.Responses[strconv.Itoa(status)]; !is {
			t.Errorf("%s %s answers %d, which the document does not have of %s", method, target, status, op.OperationID)
		}
	}
}

// fits returns how a value differs from its schema: fields that the schema does not have, and fields
// that are missing.
func (d *document) fits(s schema, v any) (wrong []string) {
	if s.Ref != "" {
		s = d.Components.Schemas[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
	}
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			is, known := s.Properties[name]
			if !known && len(s.Properties) > 0 {
				wrong = append(wrong, "has "+name)
				continue
			}
			wrong = append(wrong, d.fits(is, inner)...)
		}
		for _, name := range s.Required {
			if _, there := v[name]; !there {
				wrong = append(wrong, "lacks "+name)
			}
		}
	case []any:
		for _, inner := range v {
			if s.Items != nil {
				wrong = append(wrong, d.fits(*s.Items, inner)...)
			}
		}
	case string:
		if s.Enum != nil && !slices.Contains(s.Enum, any(v)) {
			wrong = append(wrong, "is "+v)
		}
	}
	return wrong
}

// The document has examples of everything that is sent and answered, lists problems by status with
// when to try again, and leaves room for more fields in answers.
func TestDocumentIsWhole(t *testing.T) {
	d := documented()
	if len(d.Servers) != 1 || d.Servers[0].URL != "/" {
		t.Errorf("servers %v", d.Servers)
	}
	for path, ops := range d.Paths {
		for method, op := range ops {
			contents := map[string]map[string]media{"body": op.RequestBody.Content}
			for status, r := range op.Responses {
				contents[status] = r.Content
				_, later := r.Headers["Retry-After"]
				if want := status == "429" || status == "503"; later != want {
					t.Errorf("%s %s: %s with Retry-After: %v", method, path, status, later)
				}
			}
			for _, status := range []string{"400", "401", "403", "429", "500", "503", "default"} {
				if contents[status]["application/problem+json"].Example == nil {
					t.Errorf("%s %s: no %s", method, path, status)
				}
			}
			for of, content := range contents {
				for kind, is := range content {
					if is.Example == nil {
						t.Errorf("%s %s: no example of %s, %s", method, path, of, kind)
					} else if wrong := d.fits(is.Schema, is.Example); len(wrong) > 0 {
						t.Errorf("%s %s: the example of %s, %s, %v", method, path, of, kind, wrong)
					}
				}
			}
			for name := range d.Components.Schemas {
				if strings.HasPrefix(strings.ToLower(name), strings.ToLower(op.OperationID)) {
					t.Errorf("the schema %s is named like the operation %s: generators make types of both", name,
						op.OperationID)
				}
			}
		}
	}
	// Request bodies, in which unknown fields are refused.
	taken := []string{"NewTimer", "NewTimers", "Correction", "CalendarRules"}
	for name, s := range d.Components.Schemas {
		if open := s.AdditionalProperties == nil; open == slices.Contains(taken, name) {
			t.Errorf("schema %s is open: %v", name, open)
		}
	}
	shown, put := d.Components.Schemas["Timer"], d.Components.Schemas["NewTimer"]
	for name := range shown.Properties {
		if _, taken := put.Properties[name]; !taken {
			t.Errorf("%s of a timer is not in what PUT takes", name)
		}
	}
	var bodies []string
	for kind := range d.Paths["/v1/topics/{topic}/timers/{id}"]["put"].RequestBody.Content {
		bodies = append(bodies, kind)
	}
	if slices.Sort(bodies); bodies[0] != "application/json" { // the document lists them in this order
		t.Errorf("bodies %q", bodies)
	}
}

// The document lists all reasons that the code has.
func TestDocumentHasAllReasons(t *testing.T) {
	want := map[string]bool{"partition-failed": true, "kafka-unreachable": true}
	for _, r := range waterclock.Reasons() {
		want[string(r)] = true
	}
	for _, file := range []string{"problem.go", "access/problem.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(s.Names[0].Name, "Reason") {
				return true
			}
			if text, ok := s.Values[0].(*ast.BasicLit); ok {
				reason, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				want[reason] = true
			}
			return true
		})
	}
	var got []string
	for _, r := range documented().Components.Schemas["Problem"].Properties["reason"].Enum {
		got = append(got, r.(string))
	}
	if all := slices.Sorted(maps.Keys(want)); !slices.Equal(got, all) {
		t.Errorf("reasons\n%q\nwant\n%q", got, all)
	}
}

func TestNext(t *testing.T) {
	in := alone(t)
	a := in.Get("/v1/next?cron=0+9+*+*+mon-fri&zone=Africa%2FLagos&n=2&from=2026-11-20T12:00:00Z").Is(200, "")
	if got := fmt.Sprint(a.Body["next"]); got != "[2026-11-23T09:00:00+01:00 2026-11-24T09:00:00+01:00]" {
		t.Error(got)
	}
	// With jitter, each may be due up to that much later, but before the next one; so may a timer that fires once.
	for query, want := range map[string]string{
		"cron=0+9+*+*+*&jitter=10m&n=1":                  "[2026-11-21T09:00:00Z] [2026-11-21T09:09:59.999Z]",
		"every=1m&at=2026-11-01T00:00:00Z&jitter=1h&n=1": "[2026-11-20T12:01:00Z] [2026-11-20T12:01:59.999Z]",
		"at=2026-11-21T09:00:00Z&jitter=90s":             "[2026-11-21T09:00:00Z] [2026-11-21T09:01:29.999Z]",
		"at=2026-11-19T09:00:00Z&jitter=90s":             "[] <nil>",
		"every=P1M&zone=UTC&at=2026-11-01T00:00:00Z&n=2": "[2026-12-01T00:00:00Z 2027-01-01T00:00:00Z] <nil>",
	} {
		a := in.Get("/v1/next?from=2026-11-20T12:00:00Z&"+query).Is(200, "")
		if got := fmt.Sprint(a.Body["next"], " ", a.Body["latest"]); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	in.Get("/v1/next?cron=@daily&jitter=often").Is(400, "bad-jitter")
	in.Get("/v1/next?at=2026-11-21T09:00:00Z&zone=UTC").Is(400, "unknown-zone")
	// The limit of an expression is that of a request.
	longest := "/v1/next?cron=0+9+*+*+*" + strings.Repeat("+", calendar.MaxExpressionBytes-len("0 9 * * *"))
	in.Get(longest).Is(200, "")
	in.Get(longest+"+").Is(400, "bad-request")
}

// A preview says what calendars exclude, and where it goes.
func TestNextNotOn(t *testing.T) {
	in, _, _ := withCalendars(t)
	in.Call("PUT", "/v1/calendars/weekend", `{"zone": "Europe/Berlin", "weekly": ["sat", "sun"]}`).Is(201, "")
	in.Call("PUT", "/v1/calendars/may", `{"zone": "Europe/Berlin", "dates": ["2027-05-31"]}`).Is(201, "")
	in.Call("PUT", "/v1/calendars/always", `{"weekly": ["0-6"]}`).Is(201, "")
	const from = "/v1/next?from=2027-04-20T00:00:00Z&"
	const month = "cron=0+17+L+*+*&zone=Europe%2FBerlin&not-on=weekend,+may"
	a := in.Get(from+month+"&shift=previous&n=3").Is(200, "")
	if got := fmt.Sprint(a.Body["next"]); got != "[2027-04-30T17:00:00+02:00 2027-05-28T17:00:00+02:00 "+
		"2027-06-30T17:00:00+02:00]" {
		t.Error(got)
	}
	if got := fmt.Sprint(a.Body["changed"]); got != "[map[calendar:may for:2027-05-31T17:00:00 "+
		"next:2027-05-28T17:00:00+02:00 why:calendar may excludes it]]" {
		t.Error(got)
	}
	for query, want := range map[string]string{
		month + "&n=2": "[2027-04-30T17:00:00+02:00 2027-06-30T17:00:00+02:00] [may] <nil>",
		"cron=0+9+*+*+*&not-on=weekend&n=1&shift=next&from=2027-04-23T12:00:00Z": "[2027-04-26T09:00:00Z] " +
			"[weekend weekend] <nil>",
		"every=1h&not-on=weekend&n=1&from=2027-04-24T12:00:00Z": "[2027-04-25T22:00:00Z] " +
			strings.TrimSuffix("["+strings.Repeat("weekend ", 20), " ") + "] true",
		"at=2027-04-24T12:00:00Z&not-on=weekend":            "[] [weekend] <nil>",
		"at=2027-04-24T12:00:00Z&not-on=weekend&shift=next": "[2027-04-26T12:00:00Z] [weekend] <nil>",
		"cron=0+9+*+*+*&not-on=always&n=1": "[] " +
			strings.TrimSuffix("["+strings.Repeat("always ", 20), " ") + "] true",
	} {
		if !strings.Contains(query, "from=") {
			query = "from=2027-04-20T00:00:00Z&" + query
		}
		a := in.Get("/v1/next?"+query).Is(200, "")
		var by []string
		changed, _ := a.Body["changed"].([]any)
		for _, c := range changed {
			by = append(by, fmt.Sprint(c.(map[string]any)["calendar"]))
		}
		if got := fmt.Sprintf("%v %v %v", a.Body["next"], by, a.Body["changedMore"]); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	in.Get(from+"cron=@daily&not-on=weekend,gone").Is(400, "unknown-calendar")
	in.Get(from+"cron=@daily&not-on=weekend,,may").Is(400, "bad-not-on")
	in.Get(from+"cron=@daily&not-on=weekend&shift=on").Is(400, "bad-shift")
	in.Get(from+"cron=@daily&shift=next").Is(400, "bad-shift")
	alone(t).Get(from+"cron=@daily&not-on=weekend").Is(400, "unknown-calendar")
}

// A preview takes what a request takes, and its costs do not depend on how far it is from the beginning.
func TestNextOfAnyBeginning(t *testing.T) {
	in := alone(t)
	const november, bonn = "2026-11-01T00:00:00Z", "&zone=Europe%2FBerlin"
	for _, c := range []struct{ what, at, from, next string }{
		{"every=P1D", november, "2026-11-20T12:00:00Z", "2026-11-21T00:00:00Z"},
		{"every=P2W", november, "2026-11-20T12:00:00Z", "2026-11-29T00:00:00Z"},
		{"every=1500us", november, november, "2026-11-01T00:00:00.002Z"},
		{"every=P1D", november, "1969-07-20T00:00:00Z", november},
		{"every=1964-02-29T07:00:00Z%2FP1Y" + bonn, "2027-06-01T00:00:00Z", november, "2028-02-29T08:00:00+01:00"},
		{"every=P1Y" + bonn, "1964-02-29T07:00:00Z", "2027-01-01T00:00:00Z", "2027-02-28T08:00:00+01:00"},
		{"cron=0+9+29+2+*", "1964-02-29T07:00:00Z", "2027-01-01T00:00:00Z", "2028-02-29T09:00:00Z"},
	} {
		a := in.Get("/v1/next?n=1&"+c.what+"&at="+c.at+"&from="+c.from).Is(200, "")
		if got := fmt.Sprint(a.Body["next"]); got != "["+c.next+"]" {
			t.Errorf("%+v: %s", c, got)
		}
	}
	for _, wrong := range []string{"every=P1M", "every=P200000D", "every=P1DT1H&zone=UTC", "every=0s", "every=P0D",
		"every=2026-11-01T00:00:00Z%2FP1M", "every=x%2FP1M&zone=UTC",
		"every=PT1H&zone=UTC", "every=1h&cron=@daily", "zone=UTC", "every=P1D&at=9223372036854775807",
		"every=P1D&zone=UTC&at=253402300800000"} {
		in.Get("/v1/next?"+wrong).Is(400, "")
	}
	begin := time.Now()
	in.Get("/v1/next?cron=*+*+*+*+*"+bonn+"&at=1973-04-01T00:00:00Z&n=1000&from=9990-01-01T00:00:00Z").Is(200, "")
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("a preview of 1000 occurrences takes %s", took)
	}
}

// The document names every operation, and the page for people loads nothing.
func TestDocument(t *testing.T) {
	in := alone(t)
	doc := in.Get("/openapi.json").Is(200, "")
	if doc.Body["openapi"] != "3.1.0" || len(doc.Object("paths")) < 12 {
		t.Errorf("%.300s", doc.Text)
	}
	if a := in.Get("/openapi.yaml"); a.Status != 200 || !strings.Contains(a.Text, "openapi: 3.1.0") {
		t.Errorf("%d %.300s", a.Status, a.Text)
	}
	page := in.Get("/docs").Is(200, "")
	for _, bad := range []string{"http://", "https://", "<script", "src="} {
		if strings.Contains(page.Text, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if !strings.Contains(page.Text, "/v1/topics/{topic}/timers/{id}/trigger") {
		t.Error("the page lacks an operation")
	}
}
