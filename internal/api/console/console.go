package console

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/recent"
)

// maxForm limits a form, in bytes. The guard's limit is usually lower.
const maxForm = 8 << 20

// policy lets pages load nothing but files of this address, and run nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

//go:embed static templates
var files embed.FS

// Options of a Console.
type Options struct {
	API     http.Handler
	History *recent.History // nil: there is no history
	Logger  *slog.Logger
	Now     func() time.Time // nil: time.Now
}

// Console serves pages at its own paths, and the API at all others. It is safe for concurrent use.
type Console struct {
	o      Options
	pages  map[string]page
	static map[string]asset
	sets   map[string]*template.Template // by page
}

// page has the handlers of a path; post may be nil.
type page struct {
	get, post func(*visit) error
}

type asset struct {
	name, kind, etag string
	body             []byte
}

// New returns a console in front of an API.
func New(o Options) *Console {
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Console{o: o, static: make(map[string]asset), sets: make(map[string]*template.Template)}
	c.pages = map[string]page{
		"/":             {get: c.overview},
		"/timers":       {get: c.timers},
		"/activity":     {get: c.activity},
		"/timer":        {get: c.timer, post: c.steer},
		"/schedule":     {get: c.scheduleForm, post: c.schedule},
		"/dead-letters": {get: c.deadLetters, post: c.postLetters},
		"/dead-letter":  {get: c.deadLetter, post: c.correct},
		"/resend":       {get: c.resendAsk, post: c.resendAll},
		"/topics":       {get: c.topicsOf},
		"/bulk":         {get: c.bulkAsk, post: c.bulk},
		"/selected":     {get: nothingTicked, post: c.selected},
		"/job":          {get: c.job, post: c.stopJob},
		"/jobs":         {get: c.jobs},
		"/cluster":      {get: c.cluster},
		"/calendars":    {get: c.calendars},
		"/calendar":     {get: c.calendar, post: c.changeCalendar},
		"/zone":         {get: func(v *visit) error { return v.lead("/") }, post: c.setZone},
	}
	names, _ := fs.Glob(files, "*/*.*") // fails only if the pattern is malformed
	for _, name := range names {
		base := path.Base(name)
		if of, ok := strings.CutSuffix(base, ".html"); ok {
			// They are the same in each process, and tests make each of them.
			c.sets[of] = template.Must(
				template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html", name))
			continue
		}
		body := mustRead(name)
		sum := sha256.Sum256(body)
		c.static["/"+name] = asset{base, kinds[path.Ext(name)], strconv.Quote(hex.EncodeToString(sum[:8])), body}
	}
	return c
}

func mustRead(name string) []byte {
	b, err := files.ReadFile(name)
	if err != nil {
		panic("the console lacks " + name + ": " + err.Error()) // left out of the build: every process would show it
	}
	return b
}

// kinds are the types of static files. Those of package mime depend on the machine.
var kinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// ServeHTTP implements http.Handler. It compares paths unchanged: a path that is not exactly one of the console's
// belongs to the API.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := r.URL.EscapedPath()
	if a, ok := c.static[at]; ok {
		a.serve(w, r)
		return
	}
	p, ok := c.pages[at]
	if !ok && !seeksPage(r, at) {
		c.o.API.ServeHTTP(w, r)
		return
	}
	v := &visit{asker: asker{api: c.o.API, r: r}, c: c, w: w, now: c.o.Now().UTC(), clock: clockOf(r)}
	err := error(wrong(http.StatusNotFound, "there is no page at this address"))
	if ok {
		err = p.serve(v)
	}
	if err != nil {
		wrong := asProblem(err)
		_ = v.show(wrong, "problem", heading(wrong), wrong) // it has no problem
	}
}

// seeksPage reports whether a browser asks for a page. The API answers programs.
func seeksPage(r *http.Request, at string) bool {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return reads && strings.Contains(r.Header.Get("Accept"), "text/html") &&
		!strings.HasPrefix(at, "/v1/") && !strings.HasPrefix(at, "/openapi.") && at != "/docs"
}

// serve responds with a page, or returns the reason why not.
func (p page) serve(v *visit) error {
	if _, err := url.ParseQuery(v.r.URL.RawQuery); err != nil {
		return bad("the address cannot be read: " + err.Error()) // a part of a filter would be left out
	}
	switch {
	case v.r.Method == http.MethodGet || v.r.Method == http.MethodHead:
		return p.get(v)
	case v.r.Method == http.MethodPost && p.post != nil:
		// The guard checks this too. Without a guard, pages of other sites must not get here either.
		if err := http.NewCrossOriginProtection().Check(v.r); err != nil {
			return &api.Problem{Problem: *access.NewProblem(http.StatusForbidden, access.ReasonCrossOrigin,
				"a page of another site sent this form; use those of the console itself")}
		}
		v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
		if err := v.r.ParseForm(); err != nil {
			return unreadable(err)
		}
		if err := asTypedIn(v.r); err != nil {
			return err
		}
		return p.post(v)
	}
	allow := "GET, HEAD"
	if p.post != nil {
		allow += ", POST"
	}
	v.w.Header().Set("Allow", allow)
	return wrong(http.StatusMethodNotAllowed, v.r.Method+" is not for this page, but "+allow)
}

// manyFields are the fields that a form may have more than once.
var manyFields = []string{"name", "value", "as", "pick"}

// asTypedIn returns a problem if a form would not arrive as it was typed: if it is not in UTF-8, which JSON and the
// pages would replace, if it is encoded, or if a field is given twice and one would be ignored.
func asTypedIn(r *http.Request) error {
	if coding := r.Header.Get("Content-Encoding"); coding != "" {
		return wrong(http.StatusUnsupportedMediaType, "the form has a Content-Encoding, and none is decoded")
	}
	if _, params, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil {
		if charset, given := params["charset"]; given && !strings.EqualFold(charset, "utf-8") {
			return wrong(http.StatusUnsupportedMediaType, "the form has another charset than UTF-8: send it in UTF-8")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.PostForm)) {
		values := r.PostForm[name]
		if len(values) > 1 && !slices.Contains(manyFields, name) {
			return bad(fmt.Sprintf("the form has %.40q %d times: send it once", name, len(values)))
		}
		if !utf8.ValidString(name) || slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
			return bad(fmt.Sprintf(
				"the field %.40q of the form is not UTF-8: choose base64 if it is no text, or use the API", name))
		}
	}
	return nil
}

// unreadable is the problem of a form that could not be read.
func unreadable(err error) *api.Problem {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return wrong(http.StatusRequestEntityTooLarge, fmt.Sprintf(
			"the form has more than %d bytes as it is sent, the limit (api-body-limit): PUT large timers over the API",
			large.Limit))
	}
	return bad("the form cannot be read: " + err.Error())
}

func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.etag)
	h.Set("Content-Type", a.kind)
	http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.body))
}

// visit is one request of a page.
type visit struct {
	asker
	clock
	c   *Console
	w   http.ResponseWriter
	now time.Time
}

// view is the data of the layout. Page is the data of the page within it.
type view struct {
	clock
	Here  string // the page's own address, to return to
	Title string
	Path  string
	Now   time.Time
	Find  string // content of the search box in the header
	Dead  *deadBadge
	Nav   []place
	Page  any
}

// place is a page that the navigation leads to.
type place struct {
	Path, Name string
	hidden     bool     // the caller may not see it
	below      []string // paths of pages that it leads to
	Here       bool     // the page is this one, or below it
}

// Place returns the name of the place where the page is; empty: it is nowhere in the navigation.
func (v *view) Place() string {
	if i := slices.IndexFunc(v.Nav, func(to place) bool { return to.Here }); i >= 0 {
		return v.Nav[i].Name
	}
	return ""
}

// places returns the navigation. It lacks pages that the caller may not see: callers with rights only to IDs with some
// prefixes see nothing of whole topics.
func (v *visit) places() []place {
	self, narrow := v.self(), v.narrow()
	all := []place{
		{Path: "/", Name: "Overview"},
		{Path: "/timers", Name: "Timers", below: []string{"/timer", "/bulk", "/selected"}},
		{Path: "/activity", Name: "Activity"},
		{Path: "/topics", Name: "Topics", hidden: narrow},
		{Path: "/schedule", Name: "Schedule"},
		{Path: "/dead-letters", Name: "Dead letters", hidden: narrow, below: []string{"/dead-letter", "/resend"}},
		{Path: "/jobs", Name: "Jobs", below: []string{"/job"}},
		{Path: "/calendars", Name: "Calendars", hidden: self != nil && len(self.Calendars) == 0,
			below: []string{"/calendar"}},
		{Path: "/cluster", Name: "Cluster", hidden: self != nil && !self.Service},
	}
	for i := range all {
		all[i].Here = v.r.URL.Path == all[i].Path || slices.Contains(all[i].below, v.r.URL.Path)
	}
	return slices.DeleteFunc(all, func(to place) bool { return to.hidden })
}

// deadBadge is the number of dead letters next to the link to them, of all topics that the caller may read: those
// that have not been reviewed or, if none of a topic ever has been, those of the last day.
type deadBadge struct {
	N        int64
	More     bool // there are more than N
	New      bool // some are of the last hour
	Reviewed bool // N counts only letters that have not been reviewed
}

// badge returns nil if there are no dead letters.
func (v *visit) badge() *deadBadge {
	all := v.deadLetters()
	if all == nil {
		return nil
	}
	b := deadBadge{Reviewed: true}
	for _, t := range all.Topics {
		if t.New != nil {
			b.N, b.More, b.New = b.N+t.New.Count, b.More || !t.New.Exact, b.New || t.New.Count > 0 && t.LastHour > 0
			continue
		}
		b.N, b.More, b.New = b.N+t.LastDay, b.More || !t.Exact, b.New || t.LastHour > 0
		b.Reviewed = b.Reviewed && t.LastDay == 0
	}
	if b.N == 0 {
		return nil
	}
	return &b
}

// show responds with a page. The status is that of wrong, or 200 if wrong is nil.
func (v *visit) show(wrong *api.Problem, name, title string, content any) error {
	var body bytes.Buffer
	err := v.c.sets[name].Execute(&body, &view{
		clock: v.clock, Here: v.here(), Title: title, Path: v.r.URL.Path, Now: v.now,
		Find: cmp.Or(v.query("q"), v.query("prefix")), Dead: v.badge(),
		Nav: v.places(), Page: content,
	})
	if err != nil {
		v.c.o.Logger.Error("cannot render a page of the console", "page", name, "err", err)
		http.Error(v.w, "cannot render the page; see the log of the instance", http.StatusInternalServerError)
		return nil
	}
	h, status := v.w.Header(), http.StatusOK
	if wrong != nil {
		status = wrong.Status
		if after := wrong.GetHeaders().Get("Retry-After"); after != "" {
			h.Set("Retry-After", after)
		}
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(body.Bytes()) // fails only if the browser is gone
	return nil
}

// lead redirects the browser to another page.
func (v *visit) lead(to template.URL) error {
	http.Redirect(v.w, v.r, string(to), http.StatusSeeOther)
	return nil
}

// query returns a parameter of the page's address, without space around it.
func (v *visit) query(name string) string { return strings.TrimSpace(v.r.URL.Query().Get(name)) }

// raw returns a parameter unchanged: an ID may begin and end with spaces.
func (v *visit) raw(name string) string { return v.r.URL.Query().Get(name) }
