package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestNextNotOn: what an instance tells is printed as next prints its own, with what calendars exclude in between.
func TestNextNotOn(t *testing.T) {
	var asked string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query().Encode()
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("not-on") == "gone" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"status":400,"reason":"unknown-calendar","detail":"there is no calendar gone"}`)
			return
		}
		fmt.Fprint(w, `{"explanation":"At 17:00.","zone":"Europe/Berlin","changedMore":true,
			"next":["2027-03-26T17:00:00+01:00","2027-03-30T17:00:00+02:00"],
			"changed":[{"for":"2027-03-27T17:00:00","next":"2027-03-26T17:00:00+01:00","why":"calendar w excludes it"},
			{"for":"2027-03-28T17:00:00","why":"calendar w excludes it"},
			{"for":"2027-03-31T17:00:00","why":"calendar w excludes it"}]}`)
	}))
	t.Cleanup(s.Close)
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"0_17_*_*_* --zone Europe/Berlin --not-on w --shift previous --from 2027-03-26T00:00:00Z -n 3 --explain", exitOK,
			"At 17:00.\n" +
				"-- 2027-03-27T17:00:00: calendar w excludes it, it moves to 2027-03-26T17:00:00+01:00\n" +
				"2027-03-26T17:00:00+01:00  Fri CET\n" +
				"-- 2027-03-28 02:00:00: the clock of Europe/Berlin is set forward by 1h, to 03:00:00\n" +
				"-- 2027-03-28T17:00:00: calendar w excludes it, it is skipped\n" +
				"2027-03-30T17:00:00+02:00  Tue CEST\n" +
				"-- 2027-03-31T17:00:00: calendar w excludes it, it is skipped\n" +
				"-- more that calendars exclude, which is left out\n" +
				"-- nothing more within 100 years, or up to the year 9999\n", ""},
		{"@daily --not-on gone", exitUsage, "", `--not-on is "gone": unknown-calendar: there is no calendar gone`},
	} {
		args := append([]string{"next"}, strings.Fields(c.args)...)
		args[1] = strings.ReplaceAll(args[1], "_", " ")
		code, stdout, stderr := runWith(&calls{}, nil, "", append(args, "--url", s.URL)...)
		if code != c.code || stdout != c.stdout || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%s: %d, %s%s", c.args, code, stdout, stderr)
		}
		if want := "not-on=w&shift=previous&zone=Europe%2FBerlin"; c.code == exitOK && !strings.HasSuffix(asked, want) {
			t.Errorf("%s: asked %s", c.args, asked)
		}
	}
}
