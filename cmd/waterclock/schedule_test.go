package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/node/commands"
)

func TestSchedule(t *testing.T) {
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const plain = "timers/a1 timer-after=10000ms timer-target-topic=orders"
	for _, c := range []struct {
		name string
		args []string
		want string
		wait time.Duration
	}{
		{"plain", nil, plain + ` ""`, 0},
		{"value", []string{"--value", "v"}, plain + ` "v"`, 0},
		{"file", []string{"--value-file", file}, plain + ` "from a file\n"`, 0},
		{"standard input", []string{"--value-file", "-"}, plain + ` "piped"`, 0},
		{"null value", []string{"--null-value"}, plain + " null", 0},
		{"key", []string{"--key", "k"}, plain + ` timer-target-key=k ""`, 0},
		{"empty key", []string{"--key", ""}, plain + ` timer-target-key= ""`, 0},
		{"null key", []string{"--null-key"}, plain + ` timer-target-key-null=true ""`, 0},
		{"bytes that are not UTF-8", []string{"--value", "v\xff", "--key", "k\xff", "--header", "n=\xff"},
			plain + " timer-target-key=k\xff n=\xff" + ` "v\xff"`, 0},
		{"wait", []string{"--wait"}, plain + ` ""`, 30 * time.Second},
		{"wait so long", []string{"--wait=2m"}, plain + ` ""`, 2 * time.Minute},
		{"remember", []string{"--remember", "7d"},
			`timers/a1 timer-after=10000ms timer-remember=604800000ms timer-target-topic=orders ""`, 0},
		{"labels", []string{"--label", "team=a", "--label", "order=17, x=", "--labels-header", "l"},
			plain + ` timer-labels=order=17,team=a,x= timer-labels-header=l ""`, 0},
		{"partition", []string{"--partition", "7"}, plain + ` timer-target-partition=7 ""`, 0},
		{"headers", []string{"--header", "a=1", "--header", "b=x=y,z", "--header", "a="},
			plain + ` a=1 b=x=y,z a= ""`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got calls
			args := append([]string{"schedule", "--id", "a1", "--in", "10s", "--to", "orders"}, c.args...)
			code, stdout, stderr := runWith(&got, nil, "piped", args...)
			if is := written(t, &got.request); code != exitOK || is != c.want || got.request.To != "orders" ||
				got.request.Wait != c.wait || got.request.Partition != nil {
				t.Errorf("exit %d, %s\n got %s, %+v\nwant %s", code, stderr, is, got.request, c.want)
			}
			if stdout != "a1 written to timers/3/17, due 2030-01-01T08:00:00Z\n" {
				t.Errorf("printed %q", stdout)
			}
			if got.cfg.Brokers[0] != defaultBroker {
				t.Errorf("brokers %v", got.cfg.Brokers)
			}
		})
	}
}

func TestScheduleAt(t *testing.T) {
	var c calls
	code, _, stderr := runWith(&c, nil, "", "schedule", "--at", "2030-01-01T09:00:00.5+01:00")
	if is := written(t, &c.request); code != exitOK || !strings.HasSuffix(is, ` timer-at=1893484800500 ""`) {
		t.Errorf("exit %d, %s, %s", code, stderr, is)
	}
	if len(c.request.ID) < 20 {
		t.Errorf("generated ID %q", c.request.ID)
	}
}

func TestScheduleRecurring(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--every", "15m", "--count", "4"}, "timer-every=900000ms timer-count=4"},
		{[]string{"--every", "1d", "--at", "2030-12-31T23:59:59Z"}, "timer-at=1924991999000 timer-every=86400000ms"},
		{[]string{"--cron", "0 9 * * mon-fri", "--zone", "Africa/Lagos"},
			"timer-cron=0 9 * * mon-fri timer-zone=Africa/Lagos"},
		{[]string{"--cron", "@daily", "--until", "2030-12-31T23:59:59Z", "--jitter", "5m", "--catch-up", "none",
			"--max-late", "1h"},
			"timer-cron=@daily timer-until=1924991999000 timer-catch-up=none timer-max-late=3600000ms " +
				"timer-jitter=300000ms"},
		{[]string{"--cron", "@daily", "--at", "2030-12-31T23:59:59Z"}, "timer-at=1924991999000 timer-cron=@daily"},
		{[]string{"--every", "P1M2W", "--zone", "Africa/Lagos", "--if", "changed"},
			"timer-every=P1M2W timer-zone=Africa/Lagos timer-if=changed"},
	} {
		var got calls
		code, stdout, stderr := runWith(&got, nil, "", append([]string{"schedule", "--id", "a1"}, c.args...)...)
		if is := written(t, &got.request); code != exitOK || is != "timers/a1 "+c.want+` ""` {
			t.Errorf("%q: exit %d, %s\n got %s\nwant %s", c.args, code, stderr, is, c.want)
		}
		if stdout != "a1 written to timers/3/17, first due 2030-01-01T08:00:00Z\n" {
			t.Errorf("%q: printed %q", c.args, stdout)
		}
	}
}

// A time is RFC 3339 or Unix milliseconds; what is neither is told what it lacks.
func TestReadInstant(t *testing.T) {
	for _, c := range []struct{ in, want, why string }{
		{"2030-01-01T09:00:00.5+01:00", "2030-01-01T08:00:00.5Z", ""},
		{"1893484800500", "2030-01-01T08:00:00.5Z", ""},
		{"1893484800", "", "which is not a plausible time in milliseconds: if it is in seconds, write 1893484800000"},
		{"1893484800500000", "",
			"which is not a plausible time in milliseconds: if it is in microseconds, write 1893484800500"},
		{"1893484800500000001", "",
			"which is not a plausible time in milliseconds: if it is in nanoseconds, write 1893484800500"},
		{"253402300799999", "9999-12-31T23:59:59.999Z", ""},
		{"9007199254740991", "", "which as Unix milliseconds is after the year 9999"},
		{"2030-01-01T09:00", "", "which has no zone: 2030-01-01T09:00:00Z is that time in UTC, " +
			"2030-01-01T09:00:00+01:00 the one an hour east of it"},
		{"2030-01-01 09:00:01.25", "", "which has no zone: 2030-01-01T09:00:01.25Z is"},
		{"2030-01-01", "", "which has no zone: 2030-01-01T00:00:00Z is"},
		{"2030-02-30T09:00:00Z", "", "which does not exist: February 2030 has the days 1 to 28"},
		{"2028-02-30", "", "which does not exist: February 2028 has the days 1 to 29"},
		{"2030-13-01T09:00:00Z", "", "which does not exist: month out of range"},
		{"2030-01-01T25:00:00", "", "which does not exist: hour out of range"},
		{"tomorrow", "",
			"needs a time such as 2030-01-01T09:00:00+01:00 or 2030-01-01T08:00:00Z, or Unix milliseconds"},
		{"-5", "", "needs a time such as"}, {"", "", "needs a time such as"},
	} {
		at, why := readInstant(c.in)
		got := at.UTC().Format(time.RFC3339Nano)
		if !strings.HasPrefix(why, c.why) || (why == "") != (c.why == "") || why == "" && got != c.want {
			t.Errorf("%q: %s, %q", c.in, got, why)
		}
	}
}

// test/docs/testdata/mistakes.txt has more of these.
func TestScheduleRefuses(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--id has 0 bytes, needs 1 to 512", []string{"--in", "1s", "--id", ""}},
		{`--wait is "long", needs a duration`, []string{"--in", "1s", "--wait=long"}},
		{`--wait is "0s", needs a duration`, []string{"--in", "1s", "--wait=0s"}},
		{"--in and --every exclude each other", []string{"--in", "1s", "--every", "1s"}},
		{"--in and --cron exclude each other", []string{"--in", "1s", "--cron", "@daily"}},
		{"--every and --cron exclude each other", []string{"--every", "1s", "--cron", "@daily"}},
		{"comes together with a time zone", []string{"--every", "1s", "--zone", "UTC"}},
		{"needs a time zone", []string{"--every", "P1M"}},
		{"has a part of a day", []string{"--every", "P1DT1H", "--zone", "UTC"}},
		{"--count needs --every or --cron", []string{"--in", "1s", "--count", "3"}},
		{"--catch-up needs --every or --cron", []string{"--in", "1s", "--catch-up", "all"}},
		{`--every is "0s", needs a duration`, []string{"--every", "0s"}},
		{`--every is "60", needs a duration`, []string{"--every", "60"}},
		{`--cron is "": it has 0 fields`, []string{"--cron", ""}},
		{`--cron is "TZ=UTC 0 0 * * *": it names a time zone`, []string{"--cron", "TZ=UTC 0 0 * * *"}},
		{`--zone is "Mars/Olympus"`, []string{"--cron", "@daily", "--zone", "Mars/Olympus"}},
		{`--zone is ""`, []string{"--cron", "@daily", "--zone", ""}},
		{`--until is "later", needs a time`, []string{"--every", "1s", "--until", "later"}},
		{"--count is 0, needs 1 or more", []string{"--every", "1s", "--count", "0"}},
		{`--jitter is "some", needs a duration`, []string{"--every", "1s", "--jitter", "some"}},
		{`--catch-up is "some", needs all, latest or none`, []string{"--every", "1s", "--catch-up", "some"}},
		{`--catch-up is "", needs all, latest or none`, []string{"--every", "1s", "--catch-up", ""}},
		{`--max-late is "-1s", needs a duration`, []string{"--in", "1s", "--max-late", "-1s"}},
		{"--id has 513 bytes", []string{"--in", "1s", "--id", strings.Repeat("x", 513)}},
		{"--partition is -2", []string{"--in", "1s", "--partition", "-2"}},
		{"--key and --null-key exclude", []string{"--in", "1s", "--key", "k", "--null-key"}},
		{"exclude each other", []string{"--in", "1s", "--value", "", "--null-value"}},
		{"exclude each other", []string{"--in", "1s", "--value", "", "--value-file", "-"}},
		{"exclude each other", []string{"--in", "1s", "--value-file", "-", "--null-value"}},
		{`--header is "=b", needs NAME=VALUE`, []string{"--in", "1s", "--header", "=b"}},
		{`--header names "timer-max-late", which speaks to the service: --max-late sets it`,
			[]string{"--in", "1s", "--header", "timer-max-late=1s"}},
		{`"Timer-After", which speaks to the service: --in sets it`,
			[]string{"--in", "1s", "--header", "Timer-After=1s"}},
		{`"timer-pause", which speaks to the service: waterclock pause sets it`,
			[]string{"--in", "1s", "--header", "timer-pause=true"}},
		{`"timer-max-lat": there is no such header; did you mean timer-max-late, which --max-late sets?`,
			[]string{"--in", "1s", "--header", "timer-max-lat=1s"}},
		{`"timer-frobnicate": headers that begin with timer- speak to the service, and there is no such one`,
			[]string{"--in", "1s", "--header", "timer-frobnicate=1"}},
		{`"waterclock-id": headers that begin with waterclock- are written by the service`,
			[]string{"--in", "1s", "--header", "waterclock-id=1"}},
		{`--remember is "long", needs a duration`, []string{"--in", "1s", "--remember", "long"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			var got calls
			code, _, stderr := runWith(&got, nil, "", append([]string{"schedule"}, c.args...)...)
			if code != exitUsage || !strings.Contains(stderr, c.want) || got.cfg != nil {
				t.Errorf("exit %d, %q, want %q", code, stderr, c.want)
			}
		})
	}
}

// TestSaysWhatBecameOfARequest: what became of the request, and the exit code of that. The line of where it is
// comes also when nobody takes it in.
func TestSaysWhatBecameOfARequest(t *testing.T) {
	const scheduled, paused = "a1 written to timers/3/17, due 2030-01-01T08:00:00Z\n",
		"pause of a1 written to timers/3/18\n"
	schedule, pause := []string{"schedule", "--id", "a1", "--in", "10s", "--wait"},
		[]string{"pause", "--id", "a1", "--wait"}
	cancel := []string{"cancel", "--id", "a1", "--wait"}
	is, other := waterclock.Source{Topic: "timers", Partition: 3, Offset: 17},
		waterclock.Source{Topic: "timers", Partition: 3, Offset: 9}
	event := func(e waterclock.Event) *commands.Outcome {
		return &commands.Outcome{Type: e.Type, EventsRead: true, Source: is, Event: &e}
	}
	due := time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name           string
		args           []string
		outcome        *commands.Outcome
		err            error
		code           int
		stdout, stderr string
	}{
		{"pending", schedule, &commands.Outcome{Type: waterclock.EventScheduled}, nil, exitOK,
			scheduled + "a1 is pending\n", ""},
		{"replaced", schedule, event(waterclock.Event{Type: waterclock.EventReplaced, Source: is, Previous: other}),
			nil, exitOK, scheduled + "a1 is pending, in place of timers/3/9\n", ""},
		{"replaced by a later one", schedule,
			event(waterclock.Event{Type: waterclock.EventReplaced, Previous: is, Source: other}), nil, exitOK,
			scheduled + "a1 was scheduled, and a later request has taken its place: timers/3/9\n", ""},
		{"fired", schedule, event(waterclock.Event{Type: waterclock.EventFired, Source: is}), nil, exitOK,
			scheduled + "a1 was due and has fired\n", ""},
		{"excluded", schedule, event(waterclock.Event{Type: waterclock.EventExpired, Source: is,
			Detail: "calendar nights excludes its time"}), nil, exitError, scheduled,
			"a1 has expired: calendar nights excludes its time; it is not emitted"},
		{"expired", schedule, event(waterclock.Event{Type: waterclock.EventExpired, Source: is, Lateness: time.Hour}),
			nil, exitError, scheduled,
			"a1 has expired: it was 1h late when it was decided, which is beyond its --max-late; it is not emitted"},
		{"refused", schedule, &commands.Outcome{Type: waterclock.EventRejected,
			Refused: &waterclock.DeadLetter{Reason: waterclock.ReasonNoTarget, Detail: "there is none."}}, nil,
			exitError, scheduled, "a1 was rejected: no-target: there is none."},
		{"condition", append(schedule, "--if", "absent"),
			event(waterclock.Event{Type: waterclock.EventConditionNotMet, Request: is, Source: other,
				Pending: &waterclock.Pending{Due: due}}), nil,
			exitError, scheduled, "a1: condition-not-met: --if absent does not hold, for the pending timer comes " +
				"from timers/3/9, due 2030-01-01T09:00:00Z; nothing has changed"},
		{"condition of nothing", append(schedule, "--if", "present"),
			event(waterclock.Event{Type: waterclock.EventConditionNotMet, Request: is}), nil,
			exitError, scheduled,
			"a1: condition-not-met: --if present does not hold, for nothing is pending; nothing has changed"},
		{"condition of a remembered one", append(schedule, "--if", "absent"),
			event(waterclock.Event{Type: waterclock.EventConditionNotMet, Request: is}), nil,
			exitError, scheduled, "a1: condition-not-met: --if absent does not hold, for a timer of this ID has " +
				"fired and keeps the ID taken (timer-remember); nothing has changed"},
		{"no trace", schedule, &commands.Outcome{}, nil, exitOK, scheduled +
			"a1 is decided: it was due and has fired, or a later request for a1 has taken its place\n", ""},
		{"no trace, of one with a condition", append(schedule, "--if", "absent"), &commands.Outcome{}, nil,
			exitError, scheduled,
			"a1 is decided: it was due and has fired, or --if absent did not hold, or a later request for a1 has " +
				"taken its place; only events show which (the setting events)"},
		{"nobody there", schedule, nil, errors.New("is anybody there?"), exitError, scheduled,
			"is anybody there? (the request stays in the log and counts once it is processed)"},
		{"paused", pause, event(waterclock.Event{Type: waterclock.EventPaused, Request: is}), nil, exitOK,
			paused + "a1 is paused\n", ""},
		{"nothing to pause", pause, &commands.Outcome{Type: commands.NothingDone, EventsRead: true}, nil, exitError,
			paused,
			"a1: nothing has changed: nothing was pending under this ID, or it was paused already"},
		{"nothing to cancel", cancel, &commands.Outcome{Type: commands.NothingDone, EventsRead: true}, nil, exitError,
			"cancel of a1 written to timers/3/18\n", "a1: nothing has changed: nothing was pending under this ID"},
		{"cancelled", cancel, event(waterclock.Event{Type: waterclock.EventCancelled, Cancel: is}), nil, exitOK,
			"cancel of a1 written to timers/3/18\na1 is cancelled\n", ""},
		{"cancelled, without events", cancel, &commands.Outcome{Type: waterclock.EventCancelled}, nil, exitOK,
			"cancel of a1 written to timers/3/18\na1 is not pending any more: it is cancelled, unless it fired at " +
				"the same moment (events would tell)\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := runWith(&calls{outcome: c.outcome, err: c.err}, nil, "", c.args...)
			if c.stderr != "" {
				c.stderr = "waterclock: " + c.stderr + "\n"
			}
			if code != c.code || stdout != c.stdout || stderr != c.stderr {
				t.Errorf("exit %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}

// A request without a target may be a dead letter that nobody looks at: the note says so.
func TestScheduleWithoutTargetIsNoted(t *testing.T) {
	for _, c := range []struct {
		args []string
		note bool
	}{
		{nil, true},
		{[]string{"--to", "orders"}, false},
		{[]string{"--wait"}, false}, // it says what was decided
	} {
		code, _, stderr := runWith(&calls{}, nil, "", append([]string{"schedule", "--in", "10s"}, c.args...)...)
		if code != exitOK || strings.Contains(stderr, "note: without --to") != c.note {
			t.Errorf("%v: exit %d, %q", c.args, code, stderr)
		}
	}
}

// A header that a flag or a command sets is never called unknown.
func TestEveryHeaderHasItsFlag(t *testing.T) {
	source, err := os.ReadFile("../../headers.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`\tHeader\w+ += "(timer-[^"]+)"`).FindAllStringSubmatch(string(source), -1)
	for _, m := range all {
		if setBy[m[1]] == "" {
			t.Errorf("nothing is said to set %s", m[1])
		}
	}
	if len(all) < 25 {
		t.Errorf("%d headers were found", len(all))
	}
}
