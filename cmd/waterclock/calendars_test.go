package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// calendarServer answers as the API does, and remembers what was put.
func calendarServer(t *testing.T, kept map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/v1/calendars/")
		switch old, known := kept[name]; {
		case r.URL.Path == "/v1/calendars":
			fmt.Fprint(w, `{"calendars":[{"name":"a","changed":"2026-11-23T09:00:00Z","bytes":17,"mayChange":true}]}`)
		case r.Method == http.MethodPut:
			body, _ := io.ReadAll(r.Body)
			kept[name] = string(body)
			fmt.Fprintf(w, `{"name":%q,"result":"created"}`, name)
		case !known:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"reason":"not-found","detail":"there is no calendar"}`)
		case r.Method == http.MethodDelete:
			delete(kept, name)
			fmt.Fprintf(w, `{"name":%q,"result":"deleted"}`, name)
		default:
			fmt.Fprint(w, old)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestCalendars(t *testing.T) {
	kept := make(map[string]string)
	at := calendarServer(t, kept)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "\n", "\r\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	event := func(lines string) string {
		return "BEGIN:VEVENT\nUID:" + lines[:1] + "\nSUMMARY:" + lines[:1] + "\n" + lines[2:] + "\nEND:VEVENT\n"
	}
	file("de.ics", "BEGIN:VCALENDAR\n"+event("a\nDTSTART;VALUE=DATE:20991225")+
		event("b\nDTSTART;VALUE=DATE:20000501\nRRULE:FREQ=YEARLY")+
		event("c\nDTSTART;VALUE=DATE:20001101\nRRULE:FREQ=MONTHLY;BYDAY=1MO")+"END:VCALENDAR\n")
	odd := file("odd.ics", "BEGIN:VCALENDAR\n"+event("a\nDTSTART:20991224T120000\nDURATION:PT6H")+"END:VCALENDAR\n")
	for _, c := range []struct {
		args, stdin    string
		code           int
		stdout, stderr string
	}{
		{"list", "", exitOK, "NAME  CHANGED               BYTES\na     2026-11-23T09:00:00Z  17\n", ""},
		{"put a -", " {\"weekly\": [ \"sat\"]}", exitOK, "created a\n", ""},
		{"show a", "", exitOK, "{\"weekly\": [ \"sat\"]}\n", ""},
		{"put a - --json", "{}", exitOK, `"result":"created"`, ""},
		{"delete a", "", exitOK, "deleted a\n", ""},
		{"delete a", "", exitError, "", "there is no calendar"},
		{"put a -", "no json", exitUsage, "", "import takes iCalendar"},
		{"put a", "", exitUsage, "", "takes a name and a file"},
		{"show", "", exitUsage, "", "the name of one calendar"},
		{"import " + dir + "/de.ics", "", exitUsage, "", "--zone"},
		{"import " + dir + "/de.ics --zone Europe/Berlin", "", exitOK, "created de\n", "import again before: 1, such as"},
		{"show de", "", exitOK, `"yearly": [
    "05-01"
  ]`, ""},
		{"import " + odd + " --zone UTC --name x", "", exitUsage, "", "--skip leaves them out"},
		{"import " + odd + " --zone UTC --skip --dry-run", "", exitOK, "{\n  \"zone\": \"UTC\"\n}\n", `cannot be a rule: "a"`},
		{"import " + odd + " --zone UTC --years 0", "", exitUsage, "", "--years is 0"},
		{"import none.ics", "", exitUsage, "", "none.ics"},
	} {
		code, stdout, stderr := runWith(&calls{}, nil, c.stdin,
			append(append([]string{"calendars"}, strings.Fields(c.args)...), "--url", at)...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%s: %d\n%s\n%s", c.args, code, stdout, stderr)
		}
	}
	if _, known := kept["x"]; known {
		t.Error("a refused file was put")
	}
}
