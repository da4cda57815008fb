package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
)

// get --history follows cursors, over pages that are empty too, and says since when the log tells.
func TestGetHistory(t *testing.T) {
	pages := map[string]string{
		"":   `{"events":[{"offset":90,"at":"2026-11-22T09:00:01Z","event":{"type":"fired","id":"a/1","at":1795338001000,"lateness":4,"target":"orders"}}],"cursor":"50","log":{}}`,
		"50": `{"events":[],"cursor":"20","log":{}}`,
		"20": `{"events":[{"offset":7,"at":"2026-11-22T09:00:00Z","event":{"type":"scheduled","id":"a/1","at":1795338000000}}],"log":{"begins":5,"oldest":"2026-11-21T08:00:00Z"}}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/v1/topics/timers/timers/a%2F1/events" {
			t.Errorf("asked for %s", r.URL)
		}
		_, _ = w.Write([]byte(pages[r.URL.Query().Get("cursor")]))
	}))
	defer s.Close()
	for _, c := range []struct {
		args         []string
		out, outside string
	}{
		{nil, "2026-11-22T09:00:01.000Z fired a/1, 4 ms late, orders\n2026-11-22T09:00:00.000Z scheduled a/1\n",
			"begins at 2026-11-21T08:00:00Z"},
		{[]string{"--json"}, `{"type":"fired","id":"a/1","at":1795338001000,"lateness":4,"target":"orders"}` + "\n" +
			`{"type":"scheduled","id":"a/1","at":1795338000000}` + "\n", ""},
	} {
		var out, errs strings.Builder
		p := process{args: append([]string{"get", "--id", "a/1", "--history", "--url", s.URL}, c.args...), stdout: &out,
			stderr: &errs}
		if code := run(p); code != exitOK || out.String() != c.out || !strings.Contains(errs.String(), c.outside) ||
			c.outside == "" && errs.Len() > 0 {
			t.Errorf("%v: exit %d, %q, want %q; %q", c.args, code, out.String(), c.out, errs.String())
		}
	}
}

// An ID that no event names is an error, as with get; what is said is when the log begins, too.
func TestGetHistoryOfNothing(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"events":[],"log":{"oldest":"2026-11-21T08:00:00Z"}}`)
	}))
	defer s.Close()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "The log of events begins at 2026-11-21T08:00:00Z; earlier events are gone." +
			"\nwaterclock: topic timers has no events of ID \"nobody\"\n"},
		{[]string{"--json"}, "waterclock: topic timers has no events of ID \"nobody\"\n"},
	} {
		code, stdout, stderr := runWith(
			&calls{}, nil, "", append([]string{"get", "--id", "nobody", "--history", "--url", s.URL}, c.args...)...)
		if code != exitError || stdout != "" || stderr != c.want {
			t.Errorf("%v: exit %d, %q, %q", c.args, code, stdout, stderr)
		}
	}
}

// Conditions on labels are one parameter, or an error of usage.
func TestLabelsOfAFilter(t *testing.T) {
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("label"))
		fmt.Fprint(w, `{"timers":[],"deadLetters":[],"count":0,"exact":true}`)
	}))
	defer s.Close()
	for _, command := range []string{"list", "count", "dead-letters list"} {
		args := append(strings.Fields(command), "--label", "team=a", "--label", " order , zone != x", "--url", s.URL)
		if code, _, stderr := runWith(&calls{}, nil, "", args...); code != exitOK {
			t.Errorf("%s: exit %d, %s", command, code, stderr)
		}
		args = append(args, "--label", "!x")
		if code, _, stderr := runWith(&calls{}, nil, "", args...); code != exitUsage ||
			!strings.Contains(stderr, `--label: "!x" is not a condition on a label`) {
			t.Errorf("%s: exit %d, %s", command, code, stderr)
		}
	}
	const labels = "team=a,order,zone!=x"
	if !slices.Equal(asked, []string{labels, labels, labels}) {
		t.Errorf("asked for %q", asked)
	}
}

// Shells complete IDs that an API has, as arguments and as --id.
func TestCompleteIDs(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.URL.Path != "/v1/topics/slow/timers" || q.Get("prefix") != "c1" ||
			q.Get("order") != "id" {
			t.Errorf("asked for %s", r.URL)
		}
		fmt.Fprint(w, `{"timers":[{"id":"c17/a"},{"id":"c18\u001b"},{"idBase64":"/w=="},{"id":"c19"}]}`)
	}))
	defer s.Close()
	for _, args := range [][]string{
		{"get", "--topic", "slow", "c1"}, {"cancel", "--topic", "slow", "c1"},
		{"pause", "--topic", "slow", "--id", "c1"},
	} {
		_, stdout, _ := runWith(&calls{}, []string{config.EnvURL + "=" + s.URL}, "",
			append([]string{"__complete"}, args...)...)
		if stdout != "c17/a\nc19\n:4\n" {
			t.Errorf("%v: %q", args, stdout)
		}
	}
}

// Shells complete targets that pending timers have.
func TestCompleteTargets(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"timers":[{"id":"a","target":{"topic":"orders"}},{"id":"b","target":{"topic":"mail.out"}},`+
			`{"id":"c","target":{"topic":"orders"}}]}`)
	}))
	defer s.Close()
	for _, line := range []string{"list --target ", "count --target ", "cancel --target ", "schedule --to ", "tail "} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		_, stdout, _ := runWith(&calls{}, []string{config.EnvURL + "=" + s.URL}, "", args...)
		if stdout != "mail.out\norders\n:4\n" {
			t.Errorf("%s: %q", line, stdout)
		}
	}
}

// A timer that has fired is not pending: get says where the rest of its story is.
func TestGetOfWhatIsNotPending(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"status":404,"reason":"not-found","detail":"no timer of ID \"a1\" is pending on timers"}`)
	}))
	defer s.Close()
	for _, more := range [][]string{nil, {"--json"}} {
		code, stdout, stderr := runWith(
			&calls{}, nil, "", append([]string{"get", "--id", "a1", "--url", s.URL}, more...)...)
		want := "waterclock: not-found: no timer of ID \"a1\" is pending on timers; --history shows its " +
			"past, if the topic writes events\n"
		if code != exitError || stdout != "" || stderr != want {
			t.Errorf("%v: exit %d, %q, %q", more, code, stdout, stderr)
		}
	}
}

// watch says what it watches, and since when, before anything happens.
func TestWatchSaysWhatItWatches(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "data: {\"type\":\"fired\",\"id\":\"a1\",\"at\":1795338001000}\n\n")
	}))
	defer s.Close()
	for want, args := range map[string][]string{
		"Watching all timers of topic slow since 20":                        {"--topic", "slow"},
		`Watching timer "a1" of topic timers since 20`:                      {"--id", "a1"},
		`Watching timers whose IDs begin with "a" of topic timers since 20`: {"--prefix", "a", "--json"},
	} {
		code, stdout, stderr := runWith(&calls{}, nil, "", append([]string{"watch", "--url", s.URL}, args...)...)
		if code != exitError || !strings.HasPrefix(stderr, want) || !strings.Contains(stdout, "fired") ||
			strings.Contains(stdout, "Watching") {
			t.Errorf("%v: exit %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

// dead-letters lists over pages, counts by reason, and sends again: with a preview, and by a job whose
// end it waits for.
func TestDeadLetters(t *testing.T) {
	answers := map[string]string{
		"GET /v1/topics/orders.retry/dead-letters cursor= reason=bad-cron":   `{"deadLetters":[{"partition":1,"offset":9,"at":"2026-11-22T09:00:00Z","id":"a\u001b[31m","reason":"bad-cron","detail":"cron is x","source":"t/1/4","payload":null}],"cursor":"50"}`,
		"GET /v1/topics/orders.retry/dead-letters cursor=50 reason=bad-cron": `{"deadLetters":[]}`,
		"GET /v1/dead-letters cursor= reason=":                               `{"topics":[{"topic":"t","lastHour":3,"lastDay":40,"exact":false,"reasons":[{"reason":"bad-cron","lastHour":3,"lastDay":40,"newest":"2026-11-22T09:00:00Z"}]},{"topic":"u","exact":true,"reasons":[],"new":{"count":5,"exact":true,"reasons":{"bad-time":5},"by":"alice","at":"2026-11-22T08:00:00Z"}}]}`,
		"POST dry-run":                                                       `{"letters":{"count":7,"exact":true,"notWhole":2,"reasons":{"bad-time":3,"bad-cron":4}}}`,
		"POST all":                                                           `{"job":{"id":"j1","state":"running"}}`,
		"GET /v1/jobs/j1 cursor= reason=":                                    `{"id":"j1","state":"done","seen":5,"changed":3,"spared":1,"failed":1,"failure":"bad-cron: cron is x"}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		key := r.Method + " " + r.URL.Path + " cursor=" + q.Get("cursor") + " reason=" + q.Get("reason")
		if r.Method == http.MethodPost {
			if r.URL.Path != "/v1/topics/timers/dead-letters/resend" || q.Get("rate") != "1000" ||
				q.Get("reviewed") != "false" {
				t.Errorf("asked for %s", r.URL)
			}
			key = "POST all"
			if q.Get("dry-run") == "true" {
				key = "POST dry-run"
			}
		}
		if answers[key] == "" {
			t.Errorf("asked for %s", key)
		}
		_, _ = w.Write([]byte(answers[key]))
	}))
	defer s.Close()
	for _, c := range []struct {
		args         []string
		code         int
		out, outside string
	}{
		{[]string{"list", "--topic", "orders.retry", "--reason", "bad-cron"}, exitOK, "AT                    LETTER " +
			" ID           REASON    DETAIL\n2026-11-22T09:00:00Z  1/9     \"a\\x1b[31m\"  bad-cron  cron is x\n", ""},
		{[]string{"count"}, exitOK, "TOPIC  REASON    NEW  LAST HOUR  LAST DAY  NEWEST\nt      all       -    3+    " +
			"     40+       \nt      bad-cron  -    3+         40+       2026-11-22T09:00:00Z\nu      all       5   " +
			" 0          0         \nu      bad-time  5    0          0         \n",
			"so all are new"},
		{[]string{"resend", "--dry-run"}, exitOK, "5 dead letters would be sent again, and 2 not, because a part of " +
			"them is gone\n  bad-cron: 4\n  bad-time: 3\n", ""},
		{[]string{"resend", "--all", "--yes"}, exitError, "resend done: 3 changed, 1 spared, 1 failed, of 5 seen\n",
			"1 of 5 failed, the first because of bad-cron: cron is x"},
		{[]string{"resend"}, exitUsage, "", "use --all if you mean all of topic timers"},
		{[]string{"list", "--since", "soon"}, exitUsage, "", "needs RFC 3339 with a zone"},
	} {
		var out, errs strings.Builder
		p := process{args: append(append([]string{"dead-letters"}, c.args...), "--url", s.URL), stdout: &out,
			stderr: &errs}
		if code := run(p); code != c.code || out.String() != c.out || !strings.Contains(errs.String(), c.outside) ||
			c.outside == "" && errs.Len() > 0 {
			t.Errorf("%v: exit %d, %q, want %q; %q", c.args, code, out.String(), c.out, errs.String())
		}
	}
}

// Nothing of a timer speaks to the terminal that shows it.
func TestDescribeIsPrintable(t *testing.T) {
	const evil = "a\x1b]0;b\x07\u202e"
	var out bytes.Buffer
	err := describe(&out, &client.Timer{
		ID: evil, State: evil, Source: waterclock.Source{Topic: evil}, Topic: evil, MaxLate: evil,
		Target:  client.Target{Topic: evil, Key: []byte(evil)},
		Headers: []kgo.RecordHeader{{Key: evil, Value: []byte(evil)}}, Value: []byte(evil),
		Recurrence: &client.Recurrence{Cron: evil, Zone: evil, Every: evil},
	})
	if err != nil || strings.ContainsAny(out.String(), "\x1b\x07\u202e") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// Each field of a timer shows, or there is a reason why not. A new field needs a row of describe.
func TestDescribeShowsEveryField(t *testing.T) {
	hidden := map[string]string{"Scheduled": "what counts is when it is due", "Target": "its fields show",
		"Recurrence": "its fields show"}
	describes := func(one *client.Timer) string {
		var out bytes.Buffer
		if err := describe(&out, one); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	empty := func() *client.Timer { return &client.Timer{Recurrence: &client.Recurrence{}} }
	for _, part := range []func(*client.Timer) reflect.Value{
		func(one *client.Timer) reflect.Value { return reflect.ValueOf(one).Elem() },
		func(one *client.Timer) reflect.Value { return reflect.ValueOf(one.Recurrence).Elem() },
		func(one *client.Timer) reflect.Value { return reflect.ValueOf(&one.Target).Elem() },
	} {
		for _, f := range reflect.VisibleFields(part(empty()).Type()) {
			if !f.IsExported() || hidden[f.Name] != "" {
				continue
			}
			one := empty()
			set(part(one).FieldByIndex(f.Index))
			if describes(one) == describes(empty()) {
				t.Errorf("%s is not shown", f.Name)
			}
		}
	}
}

// set gives a value something that is not zero.
func set(v reflect.Value) {
	switch of := v.Addr().Interface().(type) {
	case *time.Time:
		*of = time.UnixMilli(1 << 40)
		return
	case *waterclock.Source:
		of.Topic = "timers"
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.SetUint('x')
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"x": "y"}))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		set(v.Index(0))
	case reflect.Struct:
		set(v.Field(0))
	}
}

// Figures of a partition that nobody tells of are no zeros, and are not added up as if they were.
func TestStatusOfUnknownPartitions(t *testing.T) {
	for name, c := range map[string]struct {
		second, want, ends string
		exit               int
	}{
		"unknown": {`"owner":"b","state":"unknown","pending":0`,
			"2 timers are pending on 1 partitions; the state of 1 is unknown.",
			"the state of 1 of 2 partitions is unknown", exitError},
		"unowned": {`"state":"unowned","pending":0`, "2 timers are pending on 1 partitions; the state of 1 is unknown.",
			"1 of 2 partitions are not live", exitError},
		"acquiring": {`"owner":"b","state":"replaying","pending":3`, "5 timers are pending.",
			"1 of 2 partitions are not live", exitError},
		"live": {`"owner":"b","state":"live","pending":3`, "5 timers are pending.", "", exitOK},
	} {
		total := 5
		if strings.Contains(c.want, "2 timers") {
			total = 2
		}
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"asked":"a","instances":[{"name":"a","member":true}],"unhealthyTargets":[],"pending":%d,"partitions":[
				{"topic":"t","partition":0,"owner":"a","state":"live","pending":2},{"topic":"t","partition":1,%s}]}`, total, c.second)
		}))
		var out, errs strings.Builder
		code := run(process{args: []string{"status", "--url", s.URL}, stdout: &out, stderr: &errs})
		s.Close()
		if code != c.exit || !strings.Contains(out.String(), c.want) || !strings.Contains(errs.String(), c.ends) {
			t.Errorf("%s: exit %d\n%s%s", name, code, out.String(), errs.String())
		}
		if strings.Contains(out.String()+errs.String(), "0001-") { // neither a start nor the begin of a state is known
			t.Errorf("%s: a time that nobody knows is the year 1\n%s", name, out.String())
		}
		if known := !strings.Contains(c.want, "is unknown"); known == strings.Contains(out.String(), "?") {
			t.Errorf("%s: figures\n%s", name, out.String())
		}
	}
}

// What does not pass by itself is said by get and status with what is wrong, since when and what to do.
func TestWhatDoesNotPass(t *testing.T) {
	const failed = "timers/0 has failed at instance a, since 2026-11-22T08:59:00Z, and does not go on by itself: it " +
		"has 3 partitions. Mend that, then restart the instance"
	const unreachable = "Kafka cannot be reached: no broker has answered for group g for 59s. See that the brokers run"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem := func(reason, detail string) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, `{"status":503,"reason":%q,"detail":%q}`, reason, detail)
		}
		switch r.URL.Path {
		case "/v1/topics/timers/timers/failed":
			problem("partition-failed", failed)
		case "/v1/topics/timers/timers/unreachable":
			problem("kafka-unreachable", unreachable)
		default:
			fmt.Fprint(w, `{"asked":"a","instances":[{"name":"a","problem":"no broker has answered for group g for 59s"}],"unhealthyTargets":[],"pending":0,"partitions":[
				{"topic":"timers","partition":0,"owner":"a","state":"failed","since":"2026-11-22T08:59:00Z","reason":"it has 3 partitions: restart the instance"}]}`)
		}
	}))
	defer s.Close()
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"get", "--id", "failed"}, []string{"partition-failed: " + failed}},
		{[]string{"get", "--id", "unreachable"}, []string{"kafka-unreachable: " + unreachable}},
		{[]string{"status"}, []string{
			"failed", "since 2026-11-22T08:59:00Z: it has 3 partitions: restart the instance",
			"instance a is not working: no broker has answered for group g for 59s",
		}},
	} {
		code, stdout, stderr := runWith(&calls{}, nil, "", append(c.args, "--url", s.URL)...)
		for _, w := range c.want {
			if code != exitError || !strings.Contains(stdout+stderr, w) || strings.Contains(stdout+stderr, "moving") {
				t.Errorf("%v: exit %d, %q lacks %q", c.args, code, stdout+stderr, w)
			}
		}
	}
}

// Days are durations there as everywhere, and a reason that is misspelt is not just never found.
func TestFiltersOfDeadLetters(t *testing.T) {
	for _, c := range []struct {
		f    letterFlags
		note string
	}{
		{letterFlags{since: "2d", reason: "bad-cron"}, ""},
		{letterFlags{since: "1d12h", reason: "target-unknwn"}, "did you mean target-unknown?"},
		{letterFlags{since: "10m"}, ""},
	} {
		var note strings.Builder
		c.f.note(&note)
		if l, err := c.f.read(); err != nil || l.After.IsZero() || (c.note == "") != (note.Len() == 0) ||
			!strings.Contains(note.String(), c.note) {
			t.Errorf("%+v: %v, %v, %q", c.f, l, err, note.String())
		}
	}
	for in, want := range map[string]time.Duration{"3d": 72 * time.Hour, "-10m": -10 * time.Minute} {
		if d, err := parseSpan(in); err != nil || d != want {
			t.Errorf("%s: %v, %v", in, d, err)
		}
	}
}

// A job that waits says what for.
func TestProgressOfAJob(t *testing.T) {
	if got := progress(&client.Job{Seen: 7, Changed: 5}); got != "7 seen, 5 changed" {
		t.Error(got)
	}
	if got := progress(&client.Job{Problem: "waits: no broker answers"}); got != "0 seen, 0 changed; waits: no broker "+
		"answers" {
		t.Error(got)
	}
}

// A request that had nothing to do is told with what its timer is now, where an API knows.
func TestNothingToDoTellsTheState(t *testing.T) {
	for name, c := range map[string]struct{ answer, want string }{
		"paused": {`{"id":"a1","state":"paused","partition":3}`,
			"waterclock: a timer of this ID is paused now\n"},
		"off its partition": {`{"id":"a1","state":"pending","partition":1,"note":"it is on partition 1 of timers, and its ID belongs on 3"}`, "waterclock: a timer of this ID is pending now: it is on partition 1 of timers, and its ID belongs on 3; --partition 1 reaches it\n"},
		"where it belongs": {`{"id":"a1","state":"pending","partition":1}`, "waterclock: a timer of this ID " +
			"is pending now, on partition 1, where it belongs; the request went to partition 3\n"},
		"nothing, or no such API": {"", ""},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.answer == "" {
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprint(w, c.answer)
		}))
		outcome := &commands.Outcome{Type: commands.NothingDone, EventsRead: true}
		code, _, stderr := runWith(&calls{outcome: outcome}, nil, "",
			"pause", "--id", "a1", "--wait", "--partition", "3", "--url", s.URL)
		s.Close()
		const first = "waterclock: a1: nothing has changed: nothing was pending under this ID, or it was paused " +
			"already\n"
		if more, ok := strings.CutPrefix(stderr, first); code != exitError || !ok || !strings.Contains(more, c.want) ||
			(c.want == "") != (more == "") {
			t.Errorf("%s: exit %d, %q", name, code, stderr)
		}
	}
}

// A request for a timer that lies off its partition goes where the timer is, with --wait or without, and says so.
// Without an API, or if the timer is where it belongs, it goes by the ID; --partition has the last word.
func TestSteerGoesWhereTheTimerIs(t *testing.T) {
	const lies = `{"id":"a1","state":"pending","partition":1,"note":"it is on partition 1 of timers, and its ID belongs on 3"}`
	one := int32(1)
	for name, c := range map[string]struct {
		answer string
		args   []string
		want   *int32
		said   string
	}{
		"off its partition": {lies, nil, &one,
			"a1: it is on partition 1 of timers, and its ID belongs on 3\n"},
		"off its partition, waiting": {lies, []string{"--wait"}, &one,
			"a1: it is on partition 1 of timers, and its ID belongs on 3\n"},
		"off its partition, and named": {lies, []string{"--partition", "1"}, &one, ""},
		"where it belongs":             {`{"id":"a1","state":"pending","partition":1}`, nil, nil, ""},
		"nothing, or no such API":      {"", nil, nil, ""},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.answer == "" || r.URL.Path != "/v1/topics/timers/timers/a1" {
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprint(w, c.answer)
		}))
		for _, action := range []commands.Action{commands.Cancel, commands.Trigger, commands.Pause, commands.Resume} {
			var got calls
			code, _, stderr := runWith(&got, []string{config.EnvURL + "=" + s.URL}, "",
				append([]string{string(action), "--id", "a1"}, c.args...)...)
			if code != exitOK || stderr != c.said || !reflect.DeepEqual(got.request.Partition, c.want) {
				t.Errorf("%s of one that is %s: exit %d, %q, written to %v", action, name, code, stderr,
					got.request.Partition)
			}
			// A timer that was just scheduled is found.
			if h := got.before; (h.ID != "") != (c.said != "") || h.Partition != nil || h.Wait != 0 {
				t.Errorf("%s of one that is %s: written to where the ID belongs: %+v", action, name, h)
			}
		}
		s.Close()
	}
}

func TestRelative(t *testing.T) {
	for d, want := range map[time.Duration]string{
		10 * time.Hour: "in 10h", 7 * 24 * time.Hour: "in 7d", -36 * time.Hour: "1d12h ago",
		90*time.Second + time.Millisecond: "in 1m30s", 1500 * time.Microsecond: "in 2ms",
	} {
		if got := relative(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// What is missing from a list or a count is told beside the rest: in words, in JSON, and by the exit code.
func TestMissingPartitions(t *testing.T) {
	const missing = `"missing":[{"partition":1,"reason":"elsewhere","detail":"the owner is X"},{"partition":3,"reason":"elsewhere","detail":"the owner is X"},{"partition":2,"reason":"moving","detail":"nobody owns it"}]`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/count"):
			fmt.Fprint(w, `{"count":7,"exact":false,`+missing+`}`)
		case r.URL.Query().Get("cursor") == "":
			fmt.Fprint(w, `{"timers":[{"id":"a"}],"cursor":"c",`+missing+`}`)
		default:
			fmt.Fprint(w, `{"timers":[{"id":"b"}]}`)
		}
	}))
	defer s.Close()
	const told = "waterclock: partitions 1, 3 are missing: the owner is X\nwaterclock: partition 2 is missing: " +
		"nobody owns it\n"
	for _, c := range []struct {
		args []string
		out  string
	}{
		{[]string{"count"}, "7 at least\n"},
		{[]string{"count", "--json"}, missing},
		{[]string{"list"}, "\nb "},
		{[]string{"list", "--json"},
			"\n" + `{"missing":[{"partition":1,"reason":"elsewhere","detail":"the owner is X"},{"partition":2`},
	} {
		code, stdout, stderr := runWith(&calls{}, nil, "", append(c.args, "--url", s.URL)...)
		if code != exitPart || !strings.Contains(stdout, c.out) || stderr != told {
			t.Errorf("%v: exit %d, %q, %q", c.args, code, stdout, stderr)
		}
	}
}

// watch --since prints the past, says where it begins if retention has cut it, and with --no-follow ends behind it.
func TestWatchSince(t *testing.T) {
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		fmt.Fprint(w,
			"id: 0:1\n\nid: 0:2\nevent: event\ndata: {\"type\":\"fired\",\"id\":\"a1\",\"at\":1795338001000}\n\n"+
				"id: 0:3\nevent: caught-up\ndata: {\"olderDeleted\":true}\n\nid: 0:3\nevent: later\ndata: {}\n\n"+
				"id: 0:4\nevent: event\ndata: {\"type\":\"fired\",\"id\":\"a2\",\"at\":1795338002000}\n\n")
		if len(asked) > 2 {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	defer s.Close()
	args := []string{"watch", "--url", s.URL, "--since", "2026-11-22T09:00:00Z", "--no-follow", "--type",
		"fired,expired"}
	code, stdout, stderr := runWith(&calls{}, nil, "", args...)
	if code != exitOK || stdout != "2026-11-22T09:00:01.000Z fired a1\n" ||
		!strings.Contains(stderr, "since 2026-11-22T09:00:00Z.\n") ||
		!strings.Contains(stderr, "retention has deleted") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if len(asked) != 1 || asked[0] != "follow=false&since=1795338000000&type=fired%2Cexpired" {
		t.Errorf("asked for %q", asked)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--no-follow"}, "--no-follow needs --since"},
		{[]string{"--since", "-10m"}, "in the future"},
		{[]string{"--since", "yesterday"}, "how long ago, as in 10m"},
		{[]string{"--type", "fire"}, "did you mean fired?"},
		{[]string{"--id", "a", "--prefix", "b"}, "exclude each other"},
	} {
		code, _, stderr := runWith(&calls{}, nil, "", append([]string{"watch", "--url", s.URL}, c.args...)...)
		if code != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit %d, %q, want %q", c.args, code, stderr, c.want)
		}
	}
}

// status names the settings in which an instance differs from most others, and says if that is not known.
func TestStatusNamesSettingsThatDiffer(t *testing.T) {
	var out strings.Builder
	err := showCluster(&out, &api.Cluster{Instances: []route.Instance{
		{Name: "a", SettingsDiffer: []string{}}, {Name: "b", SettingsDiffer: []string{"targets", "events"}},
		{Name: "c"},
	}})
	for _, want := range []string{"SETTINGS", "a         none                  the same",
		"b         none                  differ: targets, events", "c         none                  not known"} {
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v, lacks %q:\n%s", err, want, out.String())
		}
	}
}

// dead-letters review marks one and those before it, one alone, those of a time or all, says how to undo it, and says
// what is marked. list and resend choose what is new, or what is not.
func TestReviewDeadLetters(t *testing.T) {
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, strings.TrimSuffix(r.Method+" "+strings.TrimPrefix(r.URL.Path,
			"/v1/topics/timers/dead-letters")+"?"+r.URL.RawQuery, "?"))
		switch {
		case strings.HasSuffix(r.URL.Path, "/3/17/resend"):
			fmt.Fprint(w, `{"outcome":"scheduled","topic":"timers","partition":3,"offset":18}`)
		case strings.HasSuffix(r.URL.Path, "/resend"):
			fmt.Fprint(w, `{"letters":{"count":7,"exact":true,"reasons":{"bad-cron":7}}}`)
		case !strings.HasSuffix(r.URL.Path, "reviewed"):
			fmt.Fprint(w, `{"deadLetters":[],"position":"0:9.9"}`)
		case r.Method == http.MethodGet:
			fmt.Fprint(w, `{"topic":"timers","position":"0:0.0"}`)
		default:
			fmt.Fprint(w, `{"topic":"timers","position":"0:3.2","before":"0:1.1","by":"al\u001bice","at":"2026-11-22T09:00:00Z"}`)
		}
	}))
	defer s.Close()
	const done = "Dead letters of topic timers have been reviewed up to 0:3.2, last by \"al\\x1bice\", at " +
		"2026-11-22T09:00:00Z.\nUndo with: waterclock dead-letters review --topic timers --back 0:1.1\n"
	for _, c := range []struct {
		args  string
		out   string
		asked string
	}{
		{"review 3/17", done, "POST /3/17/reviewed?older=true"},
		{"review 3/17 --only", done, "POST /3/17/reviewed"},
		{"review --all", done, "GET ?limit=1, POST /reviewed?position=0%3A9.9"},
		{"review --before 2026-11-22T09:00:00Z", done, "POST /reviewed?before=1795338000000"},
		{"review --back 0:1.1", done, "POST /reviewed?back=true&position=0%3A1.1"},
		{"review", "No dead letters of topic timers have been reviewed.\n", "GET /reviewed"},
		{"resend 3/17", "dead letter 3/17: scheduled by the request at timers/3/18\n", "POST /3/17/resend"},
		{"resend --all --dry-run", "7 dead letters would be sent again\n  bad-cron: 7\n",
			"POST /resend?all=true&dry-run=true&rate=1000&replace=false&reviewed=false"},
		{"resend --reviewed --dry-run", "7 dead letters would be sent again\n  bad-cron: 7\n",
			"POST /resend?dry-run=true&rate=1000&replace=false&reviewed=true"},
		{"list --new", "AT  LETTER  ID  REASON  DETAIL\n", "GET ?limit=51&reviewed=false"},
		{"list --reviewed", "AT  LETTER  ID  REASON  DETAIL\n", "GET ?limit=51&reviewed=true"},
	} {
		asked = nil
		code, stdout, stderr := runWith(
			&calls{}, nil, "", append(append([]string{"dead-letters"}, strings.Fields(c.args)...), "--url", s.URL)...)
		if code != exitOK || stdout != c.out || strings.Join(asked, ", ") != c.asked {
			t.Errorf("%s: exit %d, %q, want %q; asked for %q; %s", c.args, code, stdout, c.out, asked, stderr)
		}
	}
	for args, want := range map[string]string{
		"review 3/17 --all": "exclude each other", "review --only": "--only is for one dead letter",
		"review 3-17":    "needs PARTITION/OFFSET",
		"review 1/1 2/2": "exclude each other", "resend 1/1 2/2": "needs PARTITION/OFFSET",
		"resend 3/17 --replace": "leave out the flags that are for many",
		"review --before soon":  "how long ago", "list --new --reviewed": "exclude each other",
	} {
		code, _, stderr := runWith(
			&calls{}, nil, "", append(append([]string{"dead-letters"}, strings.Fields(args)...), "--url", s.URL)...)
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %q, want %q", args, code, stderr, want)
		}
	}
}
