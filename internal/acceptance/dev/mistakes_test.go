package dev

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/rig"
)

// Mistakes that people make, each with the sentence that answers it. A sentence names the thing that is wrong and says what
// to do. In the tables, {broker}, {api}, {health}, {closed} and {dir} stand for addresses and a directory of the test.

// typed is a command line that is wrong.
type typed struct {
	args string // words between spaces; ~ stands for a space in a word
	code int
	want string // behind "waterclock: "
}

func typedMistakes() []typed {
	return []typed{
		{"shedule --in 5s", 2, `there is no command "shedule"; did you mean schedule? See waterclock --help`},
		{"schedule a1 --in 5s --to orders", 2, `waterclock schedule takes flags only, not "a1": the ID goes into --id; see waterclock schedule --help`},
		{"schedule --inn 5s --to orders", 2, `unknown flag: --inn; did you mean --in? See waterclock schedule --help`},
		{"schedule --to orders", 2, `needs --in or --at, or --every or --cron, to say when the timer is due`},
		{"schedule --in 5s --at 2030-01-01T09:00:00Z --to orders", 2, `--in and --at exclude each other: give one of them, to say when the timer is due`},
		{"schedule --in 10 --to orders", 2, `--in is "10", needs a duration such as 250ms, 10s, 1h30m or 7d`},
		{"schedule --in 5~minutes --to orders", 2, `--in is "5 minutes", needs a duration such as 250ms, 10s, 1h30m or 7d`},
		{"schedule --in -5m --to orders", 2, `--in is "-5m", which is in the past: needs a duration from now on; --in 0s fires at once`},
		{"schedule --in 200000d --to orders", 2, `--in is "200000d", needs at most 106751d`},
		{"schedule --in 40000d --to orders", 2, `not sent, because the service would reject it: beyond-horizon: the timer is due at `},
		{"schedule --at tomorrow --to orders", 2, `--at is "tomorrow", needs a time such as 2030-01-01T09:00:00+01:00 or 2030-01-01T08:00:00Z, or Unix milliseconds`},
		{"schedule --at 2030-01-01T09:00:00 --to orders", 2, `--at is "2030-01-01T09:00:00", which has no zone: 2030-01-01T09:00:00Z is that time in UTC, 2030-01-01T09:00:00+01:00 the one an hour east of it`},
		{"schedule --at 2030-02-30T09:00:00Z --to orders", 2, `--at is "2030-02-30T09:00:00Z", which does not exist: February 2030 has the days 1 to 28`},
		{"schedule --at 1893456000 --to orders", 2, `--at is "1893456000", which is no time of today in milliseconds: if it is in seconds, write 1893456000000`},
		{"schedule --at 1893456000000000 --to orders", 2, `--at is "1893456000000000", which is no time of today in milliseconds: if it is in microseconds, write 1893456000000`},
		{"schedule --in 5s --to bad~topic", 2, `--to: "bad topic" cannot be the name of a topic`},
		{"schedule --in 5s --to __consumer_offsets", 2, `not sent, because the service would reject it: target-not-allowed: no timer may write to __consumer_offsets: topics that begin with __ are Kafka's own; choose another target.`},
		{"schedule --in 5s --to orders --if maybe", 2, `--if: "maybe" is neither absent nor present nor a source: parse source "maybe": not topic/partition/offset`},
		{"schedule --in 5s --to orders --remember 30d", 2, `--remember: 30d is more than 7d`},
		{"schedule --in 5s --to orders --header timer-due=5", 2, `--header names "timer-due": there is no such header; did you mean timer-at, which --at sets?`},
		{"schedule --in 5s --to orders --header trace", 2, `--header is "trace", needs NAME=VALUE, as in trace=17`},
		{"schedule --in 5s --to orders --value-file nowhere.json", 2, `--value-file: open nowhere.json: no such file or directory`},
		{"schedule --in 5s --to orders --zone UTC", 2, `--zone needs --every or --cron: it is about a recurring timer`},
		{"schedule --every 10ms --to orders", 2, `not sent, because the service would reject it: interval-too-short: timer-every is "10ms", which has less than 100ms between two occurrences: leave at least that.`},
		{"schedule --cron 0~9~*~* --to orders", 2, `--cron is "0 9 * *": it has 4 fields, 5 or 6 are needed`},
		{"schedule --cron 0 9 * * mon-fri --to orders", 2, `waterclock schedule takes flags only, not "9": a value with spaces goes between quotes; see waterclock schedule --help`},
		{"schedule --cron 0~25~*~*~* --to orders", 2, `--cron is "0 25 * * *": the field for the hour is "25", where "25" is not 0 to 23`},
		{"schedule --cron 0~9~L~*~* --to orders", 2, `--cron is "0 9 L * *": the field for the day of the month is "L", where "L" is not 1 to 31; L, W, #, ? and H of other schedulers mean nothing here`},
		{"schedule --cron 0~9~31~2~* --to orders", 2, `--cron is "0 9 31 2 *": no date matches: no month of those given has such a day`},
		{"schedule --cron @daily --zone PST --to orders", 2, `--zone is "PST", needs the IANA name of a time zone, spelt as in Africa/Lagos (PST is an abbreviation and no name: name a place whose clock shows it, as in America/Los_Angeles)`},
		{"schedule --cron @daily --zone GMT+2 --to orders", 2, `--zone is "GMT+2", needs the IANA name of a time zone, spelt as in Africa/Lagos (GMT+2 is an offset and no name: name a place, or Etc/GMT-2, which has that offset all year and a sign that is reversed)`},
		{"schedule --cron @daily --zone europe/berln --to orders", 2, `--zone is "europe/berln", needs the IANA name of a time zone, spelt as in Africa/Lagos (did you mean Europe/Berlin?)`},
		{"schedule --in 5s --to orders --wait 10s", 2, `waterclock schedule takes flags only, not "10s": the time to wait goes behind an equals sign, --wait=10s; see waterclock schedule --help`},
		{"schedule --in 5s --to orders --topic nowhere", 1, `there is no topic nowhere; create it, or choose another request topic with --topic`},
		{"schedule --in 5s --to orders --brokers localhost", 2, `brokers is "localhost", needs host:port for each broker`},
		{"schedule --in 5s --to orders --brokers {closed}", 1, `no broker can be reached at {closed}: connection refused`},
		{"schedule --in 5s --to orders --brokers nowhere.invalid:9092", 1, `no broker can be reached at nowhere.invalid:9092: there is no host nowhere.invalid`},
		{"schedule --in 5s --to orders --brokers {api}", 1, `no broker can be reached at {api}: that port speaks HTTP, not Kafka`},
		{"schedule --in 5s --to orders --tls", 1, `the brokers at {broker} do not speak TLS on that port: name their TLS port, or leave out --tls`},
		{"schedule --in 5s --to orders --sasl-mechanism PLAIN --sasl-username ann", 2, `sasl-password-file needs to be set with sasl-mechanism PLAIN`},
		{"cancel", 2, `waterclock cancel needs the ID of a timer, as in waterclock cancel a1`},
		{"cancel a1 a2", 2, `waterclock cancel takes one timer ID, not 2 arguments: an ID with spaces goes between quotes; see waterclock cancel --help`},
		{"cancel --all", 2, `cancel with a filter or --all changes many at once, and there is no terminal to ask on: use --yes to confirm, or --dry-run to count first`},
		{"pause --prefix a --id b", 2, `--id is for one timer, and --prefix and the other filters are for many: use one or the other`},
		{"get nobody", 1, `not-found: no timer of ID "nobody" is pending on timers; --history says what has happened to it, if the topic writes events`},
		{"get a1 --topic tmers", 1, `no-such-topic: "tmers" is none of the request topics that are served: see /v1/topics`},
		{"list --state pendng", 2, `--state is "pendng", needs one of pending, triggered, paused, parked, remembered; did you mean pending?`},
		{"list --order name", 2, `--order is "name", needs due or id`},
		{"list --due-before soon", 2, `--due-before is "soon", needs RFC 3339 with a zone, as in 2026-11-22T09:00:00Z, or a duration from now, as in 10m`},
		{"list --url {api}", 2, `--url is "{api}", needs http://HOST:PORT or https://HOST:PORT`},
		{"list --url http://{closed}", 1, `no HTTP API at http://{closed}: connection refused; dev has one, serve with --api; --url or WATERCLOCK_URL names it`},
		{"list --url http://{health}", 1, `http://{health} answers 404 Not Found, and nothing of its API; does --url name it?`},
		{"list --url https://{api}", 1, `https://{api} speaks HTTP without TLS: name it with http://`},
		{"list --user ann", 2, `--user and --password-file must be set together`},
		{"list --profile prod", 2, `--profile is "prod", needs the name of a profile, and there is none: waterclock profile set prod makes it ({dir}/waterclock/profiles.yaml)`},
		{"dead-letters resend", 2, `no filter chooses dead letters: use --all if you mean all of topic timers`},
		{"tail", 2, `waterclock tail takes the name of one topic, not 0 arguments, as in waterclock tail orders`},
		{"tail orders --since 1h --from-beginning", 2, `--from-beginning and --since exclude each other`},
		{"next 0 9 * * *", 2, `waterclock next takes one expression, not 5 arguments: put it in quotes, as in '0 9 * * mon-fri'`},
		{"plan", 2, `--rate is 0, needs timers a second, 0.001 to 1G`},
		{"health --http {closed}", 1, `no instance answers at {closed} (--http names another address): connection refused`},
		{"drain --http {health} --data-dir {dir}", 1, `{dir} is not the data directory of an instance that runs: name that one with --data-dir`},
		{"serve {dir}/wc.yaml", 2, `waterclock serve takes flags only, not "{dir}/wc.yaml": a file of settings goes into --config, --config {dir}/wc.yaml; see waterclock serve --help`},
		{"serve --requests t", 2, `targets needs at least one glob, as in orders or mail.*; * allows every topic`},
		{"serve --requests t --targets x --memory 10MB", 2, `memory is "10MB", needs at least 256MiB, or 0 to have it chosen`},
		{"serve --requests t --targets x --api 8681", 2, `api is "8681", needs host:port, or to be empty`},
		{"serve --requests t --targets x --api 0.0.0.0:8681", 2, `api is "0.0.0.0:8681", needs api-users with its callers, or api-open if a proxy authenticates and nothing else can reach it, or the loopback interface (127.0.0.1, [::1] or localhost)`},
		{"serve --requests t --targets x --on-stop stay", 2, `on-stop is "stay", needs an instance-id with it, or to be leave`},
	}
}

// written is a file of settings that is wrong.
type written struct{ text, want string }

func writtenMistakes() []written {
	return []written{
		{"data_dir: x", `data_dir needs to be a known key; did you mean data-dir? ({dir}/wc.yaml:1)`},
		{"group: a: b", `group needs quotes around a value that has a colon ({dir}/wc.yaml:1)`},
		{"targets: [*]", `config is "*", needs quotes around it, as in '*': a * that begins a value names an alias in YAML ({dir}/wc.yaml:1)`},
		{"group: a\ngroup: b", `group needs to be given once: it stands further up already ({dir}/wc.yaml:2)`},
		{"tls: {ca: x}", `tls needs a value, and no settings below it: keys are flat, as in tls-ca: … ({dir}/wc.yaml:1)`},
		{"tenants:\n\ta: 1", `tenants needs spaces to indent with, not a tab ({dir}/wc.yaml:2)`},
		{"session-timeout: 10", `session-timeout is "10", needs a duration such as 250ms, 10s, 1h30m or 7d ({dir}/wc.yaml:1)`},
	}
}

// called is an HTTP call that is wrong.
type called struct {
	call    string // METHOD PATH
	body    string
	headers string // lines
	status  int
	want    string
}

func calledMistakes() []called {
	const put, to, asJSON = "PUT /v1/topics/timers/timers/a1", "timer-target-topic: orders\n", "Content-Type: application/json"
	return []called{
		{put, "v", to, 400, `nothing says when the timer is due: add timer-at, timer-after, timer-every or timer-cron, or cancel with timer-cancel: true (over HTTP by DELETE).`},
		{put, "v", "timer-after: 5s", 400, `there is no timer-target-topic and timers has no default target: add the header, or configure a default.`},
		{put, "v", to + "timer-after: 5", 400, `timer-after is "5", which is a bare number: send numbers with units, as in 250ms, 90s, 1h30m, 3d or P1DT2H.`},
		{put, "v", to + "timer-after: 5s\ntimer-count: 3", 400, `timer-count is given and the timer does not recur: add timer-every or timer-cron, or leave it out.`},
		{put, "v", to + "timer-after: 5s\ntimer-target-partition: -1", 400, `timer-target-partition is "-1": send the number of a partition, or leave the header out.`},
		{put, "v", to + "timer-after: 5s\nwaterclock-pass: trace", 400, `waterclock-pass is "trace", needs NAME=VALUE`},
		{put, "v", to + "timer-after: 5s\nIf-Match: 3", 400, `If-Match is "3", needs * or one ETag: a timer's source in quotes, as "timers/3/17"`},
		{put, "v", to + "timer-after: 5s\nContent-Encoding: gzip", 415, `the body has Content-Encoding: gzip, and none is decoded: send the body as it is; to have a payload fire compressed, leave the header out and pass content-encoding on`},
		{put, "v", "timer-cancel: true", 400, `timer-cancel has no effect here: a timer is cancelled by DELETE, and triggered, paused or resumed by a POST to its path with /trigger, /pause or /resume`},
		{put, `{"value":1}`, asJSON, 400, `the body is no timer as JSON (a payload that is JSON is sent as application/octet-stream, or as value): value is number, and needs a text`},
		{put, `{"value":"v","afer":"5s"}`, asJSON, 400, `the body is no timer as JSON (a payload that is JSON is sent as application/octet-stream, or as value): unknown field "afer"`},
		{put, `{"value":null,"after":"5s"}`, asJSON, 400, `body: value is null: give valueNull: true for Kafka's null, or leave it out`},
		{"POST /v1/topics/timers/timers/a1", "v", "", 405, `POST is not allowed on this path, which takes GET, PUT, DELETE`},
		{"DELETE /v1/topics/timers/timers/nobody", "", "", 404, `no timer of ID "nobody" was pending on timers: nothing has changed`},
		{"POST /v1/topics/timers/timers/cancel", "", "", 400, `nothing chooses timers: give due-after, due-before, prefix, target or state, or all=true for all timers of "timers"`},
		{"GET /v1/topics/timers/timers?state=pendng", "", "", 400, `the parameter state needs one of pending, triggered, paused, parked, remembered`},
		{"GET /v1/topics/timers/timers?prefx=a", "", "", 400, `there is no parameter "prefx" here; did you mean prefix?`},
		{"GET /v1/topics/timers/timers?due-after=1893456000", "", "", 400, `due-after is "1893456000", needs at least 100000000000: send milliseconds, not seconds`},
		{"GET /v1/topics/timers/timers?cursor=abc", "", "", 400, `the cursor is not one of this list: give the cursor of the page before, with the same filter and order, or none`},
		{"GET /v1/timers/a/b", "", "", 404, `there is nothing at "/v1/timers/a/b"; a slash in an ID is %2F; /openapi.json says what there is`},
		{put, "v", to + "timer-after: 5s\nOrigin: http://evil.invalid", 403, `a page of another site sent it; only the console's own pages may change something`},
	}
}

// limited are calls of an API that has callers, by one who may only read.
func limitedMistakes() []called {
	return []called{
		{"GET /v1/topics/timers/timers", "", "", 401, `the call needs a user and a password, a bearer token, or a client certificate`},
		{"GET /v1/topics/timers/timers", "", "Authorization: Bearer wrong", 401, `no caller has this bearer token: waterclock api token makes one, for api-users`},
		{"PUT /v1/topics/timers/timers/mine-1", "v", "timer-after: 5s\ntimer-target-topic: orders\nAuthorization: {token}", 403, `caller "reader" has no right to write "mine-1" on topic "timers": a grant in api-users gives it`},
		{"GET /v1/topics/timers/timers/yours-1", "", "Authorization: {token}", 403, `caller "reader" has no right to read "yours-1" on topic "timers": a grant in api-users gives it`},
	}
}

// produced is a record of the request topic that is wrong.
type produced struct {
	id      string // "": a null key
	headers string // lines
	want    string
}

func producedMistakes() []produced {
	const in, to = "timer-after: 5s\n", "timer-target-topic: orders\n"
	return []produced{
		{"", in + to, `the record has no key: its key is the timer's ID, 1 to 512 bytes.`},
		{"case", "Timer-After: 5s\n" + to, `the header "Timer-After" has the wrong case: write timer-after.`},
		{"typo", in + "timer-target: orders", `the header "timer-target" is none that waterclock knows: correct its spelling, or rename it if it is your own (did you mean timer-target-topic?).`},
		{"twice", in + in + to, `the header timer-after is given twice: send it once.`},
		{"both", in + to + "timer-at: 2030-01-01T09:00:00Z", `timer-at comes together with timer-after: send one of them.`},
		{"seconds", to + "timer-at: 1893456000", `timer-at is "1893456000": if these are seconds, send milliseconds; an instant before March 1973 is written as RFC 3339.`},
		{"nanoseconds", to + "timer-at: 1893456000000000000", `timer-at is "1893456000000000000", which is a time of today in nanoseconds: send milliseconds, 1893456000000.`},
		{"micros-until", to + "timer-every: 1m\ntimer-until: 1893456000000000", `timer-until is "1893456000000000", which is a time of today in microseconds: send milliseconds, 1893456000000.`},
		{"month", to + "timer-after: P1M", `timer-after is "P1M", which has years or months, which have no fixed length: send numbers with units, as in 250ms, 90s, 1h30m, 3d or P1DT2H.`},
		{"zone", to + "timer-cron: @daily\ntimer-zone: IST", `timer-zone is "IST", which is no time zone that is known here: send an IANA name such as Africa/Lagos (IST is an abbreviation and no name: name a place whose clock shows it, as in America/Los_Angeles).`},
		{"itself", in + "timer-target-topic: timers", `no timer may write to timers: it is a request topic, where an emission would be rejected because it has no due time, or would cancel a timer; choose another target.`},
		{"catch-up", to + "timer-every: 1m\ntimer-catch-up: some", `timer-catch-up is "some": send all, latest or none.`},
	}
}

// Each mistake is answered by its sentence, at the place where somebody makes it.
func TestMistakes(t *testing.T) {
	t.Parallel()
	drivesProcesses(t)
	dir := t.TempDir()
	token := "Bearer " + addCaller(t, dir)
	address := map[string]string{"closed": rig.FreeAddr(t), "dir": dir, "token": token}
	open := startAPI(t, address, "broker", "api", "health")
	limited := startAPI(t, map[string]string{}, "broker", "api", "health", "--api-users", filepath.Join(dir, "users.yaml"))
	fill := func(text string) string {
		for name, is := range address {
			text = strings.ReplaceAll(text, "{"+name+"}", is)
		}
		return text
	}
	said := make(map[string]bool)
	answer := func(mistake, got, want string) {
		t.Helper()
		want = fill(want)
		if got != want && !(strings.HasSuffix(want, " ") && strings.HasPrefix(got, want)) {
			t.Errorf("%s\n got %s\nwant %s", mistake, got, want)
		}
		said[got] = true
	}
	command := func(args ...string) (int, string) {
		cmd := exec.Command(rig.Binary(t), args...)
		cmd.Env = environ("WATERCLOCK_BROKERS="+address["broker"], "WATERCLOCK_URL=http://"+open, "XDG_CONFIG_HOME="+dir)
		code, out := run(t, cmd)
		return code, strings.TrimPrefix(strings.TrimSuffix(out, "\n"), "waterclock: ")
	}
	for _, m := range typedMistakes() {
		args := strings.Fields(fill(m.args))
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		code, out := command(args...)
		if answer("waterclock "+m.args, out, m.want); code != m.code {
			t.Errorf("waterclock %s: exit %d, want %d", m.args, code, m.code)
		}
	}
	for _, m := range writtenMistakes() {
		file := filepath.Join(dir, "wc.yaml")
		if err := os.WriteFile(file, []byte(m.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, out := command("config", "check", "--config", file)
		first, _, _ := strings.Cut(out, "\n")
		answer(m.text, first, m.want)
	}
	for api, calls := range map[string][]called{open: calledMistakes(), limited: limitedMistakes()} {
		for _, m := range calls {
			status, detail := call(t, api, m.call, m.body, fill(m.headers))
			if answer(m.call+" "+m.headers+m.body, detail, m.want); status != m.status {
				t.Errorf("%s: status %d, want %d", m.call, status, m.status)
			}
		}
	}
	cl := client(t, address["broker"])
	for _, m := range producedMistakes() {
		r := &kgo.Record{Topic: "timers", Key: []byte(m.id), Value: []byte("v")}
		if m.id == "" {
			r.Key = nil
		}
		for line := range strings.Lines(m.headers) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		var detail string
		await.Until(t, patience, "the dead letter of "+m.id, func() bool {
			detail = letterOf(t, open, fmt.Sprintf("timers/%d/%d", r.Partition, r.Offset))
			return detail != ""
		})
		answer("record "+m.id+" "+m.headers, detail, m.want)
	}
	if len(said) < 60 {
		t.Errorf("%d sentences, want 60", len(said))
	}
}

// addCaller writes a file of callers, with one who may read timers whose IDs begin with mine-, and returns that caller's token.
func addCaller(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command(rig.Binary(t), "api", "token", "reader", "--role", "read", "--topic", "timers", "--id-prefix", "mine-")
	cmd.Env = environ()
	var told strings.Builder
	cmd.Stderr = &told
	entry, err := cmd.Output()
	if err != nil {
		t.Fatal(err, told.String())
	}
	if err := os.WriteFile(filepath.Join(dir, "users.yaml"), append([]byte("callers:\n"), entry...), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(told.String()[strings.LastIndex(told.String(), ": ")+2:])
}

// startAPI starts dev, notes its addresses under three names, and returns that of the API once it is ready.
func startAPI(t *testing.T, address map[string]string, broker, api, health string, more ...string) string {
	t.Helper()
	address[broker] = rig.FreeAddr(t)
	p := rig.Start(t, append([]string{"dev", "--listen", address[broker], "--data-dir", t.TempDir(), "--demo=false"}, more...)...)
	found := func(pattern string) (is string) {
		await.Until(t, patience, pattern, func() bool {
			m := regexp.MustCompile(pattern).FindStringSubmatch(p.Output())
			if m != nil {
				is = m[1]
			}
			return m != nil && strings.Contains(p.Output(), "Ctrl-C stops.")
		})
		return is
	}
	address[api], address[health] = found(`HTTP API on http://(127\.0\.0\.1:\d+),`), found(`metrics on http://(127\.0\.0\.1:\d+)/`)
	return address[api]
}

// call makes a call and returns its status and the detail of the answer.
func call(t *testing.T, api, call, body, headers string) (int, string) {
	t.Helper()
	method, path, _ := strings.Cut(call, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+api+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(headers) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		r.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var problem struct{ Detail string }
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &problem)
	}
	if err != nil {
		t.Errorf("%s: %v: %s", call, err, text)
	}
	return resp.StatusCode, problem.Detail
}

// letterOf returns the detail of the dead letter of a request, "" if there is none yet.
func letterOf(t *testing.T, api, source string) string {
	t.Helper()
	resp, err := http.Get("http://" + api + "/v1/topics/timers/dead-letters?" + url.Values{"limit": {"100"}}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		DeadLetters []struct{ Source, Detail string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	for _, d := range list.DeadLetters {
		if d.Source == source {
			return d.Detail
		}
	}
	return ""
}
