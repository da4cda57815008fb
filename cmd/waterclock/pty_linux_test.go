package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// pty returns both ends of a pseudo-terminal: the one that a person has, and the one that a program has.
func pty(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// unknownToLists returns a parameter that no list of the API has; "" if there is none.
func unknownToLists(q url.Values) string {
	known := []string{"limit", "order", "prefix", "target", "state", "due-after", "due-before", "reason", "id", "after",
		"before", "reviewed", "label"}
	for name := range q {
		if !slices.Contains(known, name) {
			return name
		}
	}
	return ""
}

// bulkAPI answers calls about many timers and dead letters, and counts the jobs that are started.
func bulkAPI(t *testing.T, started *int) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		letters := strings.Contains(r.URL.Path, "dead-letters")
		switch {
		case r.URL.Path == "/v1/jobs/j1" || r.Method == http.MethodPost && q.Get("dry-run") != "true":
			*started++
			position := map[bool]string{true: "0:7"}[strings.HasSuffix(r.URL.Path, "/move")]
			fmt.Fprintf(w, `{"job":{"id":"j1","state":"done","seen":1200,"changed":1200,"position":%q}}`, position)
		case r.Method == http.MethodPost && q.Get("prefix") == "none":
			fmt.Fprint(w, `{"matching":{"count":0,"exact":true}}`)
		case r.Method == http.MethodPost && letters:
			fmt.Fprint(w, `{"letters":{"count":7,"exact":true,"reasons":{"bad-cron":7}}}`)
		case r.Method == http.MethodPost:
			fmt.Fprint(w, `{"matching":{"count":1200,"exact":true}}`)
		case q.Get("limit") != "3" || unknownToLists(q) != "": // as the API refuses it
			w.WriteHeader(http.StatusBadRequest)
			t.Errorf("asked for %s, where a list has no parameter %q", r.URL, unknownToLists(q))
		case letters:
			fmt.Fprint(w, `{"deadLetters":[{"at":"2026-11-22T09:00:00Z","id":"l1","reason":"bad-cron"}]}`)
		default:
			fmt.Fprint(w, `{"timers":[{"id":"c17/a\u001b[2J","state":"pending","due":"2099-01-01T00:00:00Z",
				"target":{"topic":"orders","keyNull":true}}]}`)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// A command that changes many timers shows how many and some of them on a terminal, and does nothing without a yes.
func TestBulkAsksOnATerminal(t *testing.T) {
	for _, c := range []struct {
		name, reply string
		args        []string
		code        int
		shows       []string
	}{
		{"yes", "y\n", []string{"cancel", "--prefix", "c17/"}, exitOK,
			[]string{"  \"c17/a\\x1b[2J\"  pending  due in ", "\r\n  ...",
				"cancel 1200 timers of topic timers? [y/N] "}},
		{"the word", "YES\n", []string{"pause", "--all"}, exitOK,
			[]string{"pause 1200 timers of topic timers? [y/N] "}},
		{"no", "n\n", []string{"cancel", "--all"}, exitError, []string{"not confirmed: nothing has changed"}},
		{"return alone", "\n", []string{"resume", "--state", "paused"}, exitError,
			[]string{"resume 1200 timers", "not confirmed"}},
		{"end of input", "\x04", []string{"cancel", "--all"}, exitError, []string{"not confirmed"}},
		{"none match", "", []string{"cancel", "--prefix", "none"}, exitError,
			[]string{"no timer matches: nothing has changed"}},
		{"--yes", "", []string{"cancel", "--all", "--yes"}, exitOK, nil},
		{"move", "y\n", []string{"move", "--all", "--by", "1h"}, exitOK,
			[]string{"move 1200 timers", "job j1 has begun; if it does not finish, the same command with "}},
		{"-y", "", []string{"dead-letters", "resend", "--all", "-y"}, exitOK, nil},
		{"letters", "y\n", []string{"dead-letters", "resend", "--reason", "bad-cron", "--replace"}, exitOK,
			[]string{"7 dead letters would be sent again", "  bad-cron: 7", "l1  bad-cron",
				"resend the dead letters of topic timers? [y/N] "}},
		{"letters, no", "no\n", []string{"dead-letters", "resend", "--all"}, exitError,
			[]string{"not confirmed: nothing has changed"}},
		{"one timer", "", []string{"cancel", "--id", "a1", "--partition", "1"}, exitOK, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			started := 0
			s := bulkAPI(t, &started)
			person, program := pty(t)
			var shown syncBuffer
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.Copy(&shown, person) // ends with the program's end
			}()
			if c.reply != "" {
				if _, err := person.WriteString(c.reply); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			code := run(process{
				args: append(c.args, "--url", s.URL), backend: (&calls{}).backend(),
				stdin: program, stdout: &out, stderr: program,
			})
			program.Close()
			<-done
			if code != c.code || (started > 0) != (code == exitOK && c.name != "one timer") {
				t.Errorf("exit %d, want %d; %d jobs; %s%s", code, c.code, started, out.String(), shown.String())
			}
			for _, want := range c.shows {
				if !strings.Contains(shown.String(), want) {
					t.Errorf("%q lacks %q", shown.String(), want)
				}
			}
			if asked := strings.Contains(shown.String(), "[y/N]"); asked != (c.reply != "") {
				t.Errorf("asked: %v: %q", asked, shown.String())
			}
		})
	}
}

// An interrupt at the question changes nothing.
func TestInterruptAtTheQuestion(t *testing.T) {
	started := 0
	s := bulkAPI(t, &started)
	person, program := pty(t)
	var shown syncBuffer
	go func() { _, _ = io.Copy(&shown, person) }()
	code := make(chan int)
	go func() {
		code <- run(process{
			args: []string{"cancel", "--all", "--url", s.URL}, stdin: program, stdout: io.Discard, stderr: program,
			backend: (&calls{}).backend(),
		})
	}()
	await.Until(t, 20*time.Second, "the question", func() bool { return strings.Contains(shown.String(), "[y/N]") })
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != exitError || started > 0 {
		t.Errorf("exit %d, %d jobs started", got, started)
	}
	await.Until(t, 20*time.Second, "the reason", func() bool {
		return strings.Contains(shown.String(), "interrupted: nothing has changed")
	})
	_, _ = person.WriteString("\n") // ends the read
}

// Without a terminal a command that changes many timers needs --yes, and calls nothing before.
func TestBulkNeedsYesWithoutATerminal(t *testing.T) {
	for _, args := range [][]string{
		{"cancel", "--prefix", "a"}, {"cancel", "--all"}, {"pause", "--state", "pending"},
		{"resume", "--due-before", "1h"},
		{"dead-letters", "resend", "--all"}, {"dead-letters", "resend", "--reason", "bad-cron"},
	} {
		started := 0
		s := bulkAPI(t, &started)
		args = append(args, "--url", s.URL)
		code, _, stderr := runWith(&calls{}, nil, "y\n", args...)
		const want = "there is no terminal for a confirmation: use --yes to confirm, or --dry-run to count first"
		if code != exitUsage || !strings.Contains(stderr, want) || started > 0 {
			t.Errorf("%v: exit %d, %q, %d jobs started", args, code, stderr, started)
		}
		if code, _, stderr := runWith(&calls{}, nil, "", append(args, "--yes")...); code != exitOK || started == 0 {
			t.Errorf("%v --yes: exit %d, %q", args, code, stderr)
		}
	}
}
