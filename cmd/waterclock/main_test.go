package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/dev"
)

// TestMain lets the scripts call the real program as waterclock.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"waterclock": main})
}

// TestScripts runs the transcripts in testdata: what the program says and which code it exits with. None of them
// reaches a broker.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
		},
	})
}

// exits runs a command and wants an exit code: exits CODE COMMAND ARGS...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%v exits %d, want %d", args[1:], got, want)
	}
}

// calls is a backend that notes what it is called with and returns err.
type calls struct {
	request     commands.Request // the last one
	before      commands.Request // the one before it
	err         error
	cfg         *config.Config
	dev         dev.Options
	outcome     *commands.Outcome
	create      bool
	repartition commands.RepartitionOptions
	audit       commands.AuditOptions
	reported    string
	tail        commands.TailOptions
}

func (c *calls) backend() backend {
	due := time.Date(2030, 1, 1, 8, 0, 0, 0, time.UTC)
	return backend{
		run: func(_ context.Context, cfg *config.Config, log *slog.Logger, _ node.Options) error {
			log.Info("here")
			c.cfg = cfg
			return c.err
		},
		dev: func(_ context.Context, o dev.Options, _ *slog.Logger) error {
			c.dev = o
			return c.err
		},
		send: func(_ context.Context, cfg *config.Config, r commands.Request) (commands.Sent, error) {
			c.cfg, c.before, c.request = cfg, c.request, r
			if r.Action != "" {
				return commands.Sent{Topic: r.Topic, Partition: 3, Offset: 18, Outcome: c.outcome}, c.err
			}
			return commands.Sent{Topic: r.Topic, Partition: 3, Offset: 17, Due: due, Outcome: c.outcome}, c.err
		},
		topics: func(_ context.Context, cfg *config.Config, create bool, out io.Writer) error {
			c.cfg, c.create = cfg, create
			_, _ = io.WriteString(out, c.reported)
			return c.err
		},
		audit: func(_ context.Context, cfg *config.Config, o commands.AuditOptions, out io.Writer) error {
			c.cfg, c.audit = cfg, o
			_, _ = io.WriteString(out, c.reported)
			return c.err
		},
		tail: func(_ context.Context, cfg *config.Config, o commands.TailOptions, out io.Writer) error {
			c.cfg, c.tail = cfg, o
			_, _ = io.WriteString(out, c.reported)
			return c.err
		},
		follow: func(_ context.Context, cfg *config.Config, o commands.RepartitionOptions, out io.Writer) error {
			c.cfg, c.repartition = cfg, o
			_, _ = io.WriteString(out, c.reported)
			return c.err
		},
	}
}

// written returns what a request writes: topic, ID, headers and value.
func written(t *testing.T, r *commands.Request) string {
	t.Helper()
	rec, err := r.Record()
	if err != nil {
		t.Fatal(err)
	}
	text := r.Topic + "/" + r.ID
	for _, h := range rec.Headers {
		text += fmt.Sprintf(" %s=%s", h.Key, h.Value)
	}
	if rec.Value == nil {
		return text + " null"
	}
	return text + fmt.Sprintf(" %q", rec.Value)
}

// runWith runs one command line against c.
func runWith(c *calls, environ []string, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errOut strings.Builder
	code = run(process{
		args: args, environ: environ, stdin: strings.NewReader(stdin),
		program: "./waterclock", stdout: &out, stderr: &errOut, backend: c.backend(),
	})
	return code, out.String(), errOut.String()
}

func TestAudit(t *testing.T) {
	c := calls{reported: "all add up\n"}
	code, stdout, stderr := runWith(&c, nil, "", "audit", "--brokers", "a:1", "--requests", "timers", "--targets", "*",
		"--from", "2026-10-01T00:00:00Z", "--until", "2026-11-01T00:00:00Z", "--dir", "d", "--json")
	want := commands.AuditOptions{From: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC),
		Until: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Dir: "d", JSON: true}
	if code != exitOK || c.audit != want || stdout != c.reported {
		t.Errorf("exit %d, %s%s, %+v", code, stdout, stderr, c.audit)
	}
	c = calls{err: errors.New("1 violations: loss 1")}
	if code, _, stderr := runWith(&c, nil, "", "audit", "--brokers", "a:1", "--requests", "timers", "--targets", "*",
		"--from", "24h"); code != exitError || time.Since(c.audit.From).Round(time.Hour) != 24*time.Hour ||
		!strings.Contains(stderr, "loss 1") {
		t.Errorf("exit %d, %s, %+v", code, stderr, c.audit)
	}
	if code, _, stderr := runWith(&c, nil, "", "audit", "--brokers", "a:1", "--requests", "timers", "--targets", "*",
		"--from", "1h", "--until", "2h"); code != exitUsage || !strings.Contains(stderr, "must be after --from") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if code, _, stderr := runWith(&c, nil, "", "audit", "--brokers", "a:1", "--requests", "timers", "--targets", "*",
		"--from", "yesterday"); code != exitUsage || !strings.Contains(stderr, "--from") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestTail(t *testing.T) {
	c := calls{reported: "a record\n"}
	code, stdout, stderr := runWith(&c, nil, "", "tail", "orders", "--since", "1h", "-n", "3", "--json")
	if o := c.tail; code != exitOK || stdout != c.reported || c.cfg.Brokers[0] != defaultBroker ||
		o.Topic != "orders" || o.Count != 3 ||
		!o.JSON || o.FromBeginning || o.Notes == nil || time.Since(o.Since).Round(time.Minute) != time.Hour {
		t.Errorf("exit %d, %s%s, %+v", code, stdout, stderr, o)
	}
	c = calls{err: errors.New("topic orders was deleted")}
	code, _, stderr = runWith(&c, []string{"WATERCLOCK_BROKERS=a:1"}, "", "tail", "--from-beginning", "orders")
	if code != exitError || c.cfg.Brokers[0] != "a:1" || !c.tail.FromBeginning || stderr != "waterclock: topic "+
		"orders was deleted\n" {
		t.Errorf("exit %d, %s, %+v", code, stderr, c.tail)
	}
}

func TestServe(t *testing.T) {
	var c calls
	code, _, stderr := runWith(&c, []string{"WATERCLOCK_GROUP=g"}, "",
		"serve", "--brokers", "a:1,b:2", "--requests", "timers", "--targets", "orders,mail.*", "--log-format", "json")
	if code != exitOK || c.cfg == nil || c.cfg.Group != "g" || len(c.cfg.Brokers) != 2 || len(c.cfg.Targets) != 2 {
		t.Errorf("exit %d, %s, %+v", code, stderr, c.cfg)
	}
	if !strings.Contains(stderr, `"msg":"here"`) {
		t.Errorf("log: %q", stderr)
	}
}

// Where the log is for programs its last line is too: why the command has ended.
func TestLastLineOfAJSONLog(t *testing.T) {
	for name, c := range map[string]struct {
		calls calls
		args  []string
		want  string
	}{
		"an error":            {calls{err: errors.New("broker on fire")}, nil, "broker on fire"},
		"wrong configuration": {calls{}, []string{"--group", ""}, "group"},
	} {
		_, _, stderr := runWith(
			&c.calls, nil, "",
			append([]string{"serve", "--brokers", "a:1", "--requests", "t", "--targets", "*", "--log-format", "json"},
				c.args...)...)
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		for _, line := range lines {
			var is map[string]any
			if err := json.Unmarshal([]byte(line), &is); err != nil {
				t.Errorf("%s: %q: %v", name, line, err)
			}
		}
		if last := lines[len(lines)-1]; !strings.Contains(last, `"msg":"process ended"`) ||
			!strings.Contains(last, c.want) {
			t.Errorf("%s: %s", name, last)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		code int
		want string
	}{
		{"clean stop", nil, exitOK, ""},
		{"runtime error", errors.New("broker on fire"), exitError, "waterclock: broker on fire\n"},
		{"found later to be misconfigured", &config.Problem{Setting: "lanes", Need: "less"}, exitUsage,
			"waterclock: lanes needs less\n"},
		{"two lines", errors.Join(errors.New("a"), errors.New("b")), exitError, "waterclock: a\nwaterclock: b\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, stderr := runWith(&calls{err: c.err}, nil, "", "topics", "--brokers", "a:1", "--requests", "t")
			if code != c.code || stderr != c.want {
				t.Errorf("exit %d, %q; want %d, %q", code, stderr, c.code, c.want)
			}
		})
	}
}

// TestSIGTERM holds that the signal ends the context of serve, whose clean stop then is exit code 0.
func TestSIGTERM(t *testing.T) {
	b := (&calls{}).backend()
	b.run = func(ctx context.Context, _ *config.Config, _ *slog.Logger, _ node.Options) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	code := run(process{
		args:   []string{"serve", "--brokers", "a:1", "--requests", "t", "--targets", "*"},
		stdout: io.Discard, stderr: io.Discard, backend: b,
	})
	if code != exitOK {
		t.Errorf("exit %d", code)
	}
}

// TestSIGHUP: the file is read again. What is wrong is said, and the old settings stay; what is right is passed on.
func TestSIGHUP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wc.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("brokers: a:1\nrequests: [t]\ntargets: [x]\n")
	var log syncBuffer
	b := (&calls{}).backend()
	b.run = func(ctx context.Context, first *config.Config, _ *slog.Logger, o node.Options) error {
		hangUp := func() {
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Error(err)
			}
		}
		write("brokers: a:1\nrequests: [t]\ntargets: [x]\nfrobnicate: 1\nlanes: many\n")
		hangUp()
		if _, said := await.Within(20*time.Second,
			func() bool { return strings.Contains(log.String(), "lanes is") }); !said {
			t.Error("what is wrong is not said")
			return nil
		}
		select {
		case got := <-o.Reload:
			t.Errorf("a wrong file is passed on: %+v", got)
		default:
		}
		write("brokers: a:1\nrequests: [t]\ntargets: [y]\ntenants: {t: {limit-rate: 5}}\n")
		hangUp()
		select {
		case got := <-o.Reload:
			if got.TargetsOf("t")[0] != "y" || got.PolicyOf("t").LimitRate != 5 || got.Group != "g" ||
				first.TargetsOf("t")[0] != "x" {
				t.Errorf("got %+v, had %+v", got, first)
			}
		case <-time.After(20 * time.Second):
			t.Error("the file is not read again")
		}
		return nil
	}
	code := run(process{args: []string{"serve", "--config", path, "--group", "g"}, stdout: io.Discard, stderr: &log,
		backend: b})
	if code != exitOK {
		t.Errorf("exit %d", code)
	}
	for _, want := range []string{"the old one stays", "frobnicate needs to be a known key", `lanes is \"many\"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestDev(t *testing.T) {
	var c calls
	code, _, stderr := runWith(&c, nil, "", "dev", "--listen", "127.0.0.1:19", "--demo=false")
	cfg := c.dev.Config
	if code != exitOK || cfg.Listen != "127.0.0.1:19" || cfg.Demo || c.dev.Out == nil ||
		cfg.Requests[0] != "timers" || cfg.Targets[0] != "*" ||
		cfg.DataDir != "./waterclock-dev" || cfg.LogLevel != slog.LevelWarn || c.dev.Program != "./waterclock" {
		t.Errorf("exit %d, %s, %+v", code, stderr, c.dev)
	}
}

// TestProgramName: the commands that dev shows are called as dev was.
func TestProgramName(t *testing.T) {
	for arg0, want := range map[string]string{
		"waterclock":                                       "waterclock",
		"./bin/waterclock":                                 "./bin/waterclock",
		"/tmp/go-build123/b001/exe/waterclock":             "go run ./cmd/waterclock",
		"/home/a/.cache/go-build/01/0123abcd-d/waterclock": "go run ./cmd/waterclock",
		// GOCACHE
		"/srv/cache/0a/0ac1d2abfb138c7ea5d0636b0fbfa73c835e4e32345c5194bf5d385acc45d774-d/waterclock": "go run " +
			"./cmd/waterclock",
		"/srv/go-builders/waterclock": "/srv/go-builders/waterclock",
	} {
		if got := programName(arg0); got != want {
			t.Errorf("%s is called as %s, want %s", arg0, got, want)
		}
	}
}

// The help of each command fits a terminal, and each flag is in a section of it, each command in a group.
func TestHelp(t *testing.T) {
	runs.NotRaced(t)
	var all func(cmd *cobra.Command)
	all = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if in, _ := sectionOf(cmd, f.Name); in == "" && !f.Hidden && f.Name != "help" {
				t.Errorf("%s: --%s is in no section of the help", cmd.CommandPath(), f.Name)
			}
		})
		if cmd.Short == "" && cmd.Name() != "help" {
			t.Errorf("%s has no text in help.txt", cmd.CommandPath())
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		code, stdout, stderr := runWith(&calls{}, nil, "", append(path, "--help")...)
		if code != exitOK {
			t.Errorf("%v --help: exit %d, %s", path, code, stderr)
		}
		for line := range strings.Lines(stdout) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > helpColumns {
				t.Errorf("%v: %d columns: %s", path, n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				all(sub)
			}
		}
	}
	root := newRoot(&process{backend: (&calls{}).backend()})
	all(root)
	for _, sub := range root.Commands() {
		if sub.IsAvailableCommand() && !slices.ContainsFunc(commandGroups(),
			func(g section) bool { return g.has(sub.Name()) }) {
			t.Errorf("%s is in no group of the help", sub.Name())
		}
	}
}

func TestTopicsPassesItsFlags(t *testing.T) {
	for _, create := range []bool{true, false} {
		c := calls{reported: "all well\n"}
		code, stdout, stderr := runWith(&c, nil, "", "topics", "--brokers", "a:1", "--requests", "t",
			"--create="+strconv.FormatBool(create))
		if code != exitOK || c.create != create || stdout != "all well\n" {
			t.Errorf("exit %d, %q, %q, create %v", code, stdout, stderr, c.create)
		}
	}
}

func TestFollow(t *testing.T) {
	c := calls{reported: "t: done\n"}
	code, stdout, stderr := runWith(&c, nil, "", "topics", "follow", "--brokers", "a:1", "--requests", "t", "--targets",
		"*", "--group", "g", "--restore", "a,b", "--dry-run")
	if code != exitOK || stdout != "t: done\n" || c.cfg.Group != "g" || len(c.repartition.Restore) != 2 ||
		!c.repartition.DryRun {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if code, _, _ := runWith(&c, nil, "", "topics", "follow", "--brokers", "a:1", "--requests",
		"t"); code != exitUsage {
		t.Errorf("without targets: exit %d, want %d", code, exitUsage)
	}
}

// With --json a request is one object, with its outcome if it was waited for.
func TestWritesAsJSON(t *testing.T) {
	rejected := &commands.Outcome{Type: waterclock.EventRejected,
		Refused: &waterclock.DeadLetter{Reason: "bad-cron", Detail: "cron is <x>"}}
	for _, c := range []struct {
		args    []string
		outcome *commands.Outcome
		code    int
		want    string
	}{
		{[]string{"schedule", "--id", "a1", "--in", "1s", "--to", "x"}, nil, exitOK,
			`{"id":"a1","action":"schedule","topic":"timers","partition":3,"offset":17,"due":"2030-01-01T08:00:00Z"}`},
		{[]string{"schedule", "--id", "a1", "--in", "1s", "--to", "x", "--wait"}, rejected, exitError,
			`{"id":"a1","action":"schedule","topic":"timers","partition":3,"offset":17,"due":"2030-01-01T08:00:00Z",` +
				`"outcome":{"type":"rejected","reason":"bad-cron","detail":"cron is <x>"}}`},
		{[]string{"cancel", "a1", "--wait"}, &commands.Outcome{Type: waterclock.EventCancelled}, exitOK,
			`{"id":"a1","action":"cancel","topic":"timers","partition":3,"offset":18,"outcome":{"type":"cancelled"}}`},
		{[]string{"trigger", "a1", "--wait"}, &commands.Outcome{}, exitOK,
			`{"id":"a1","action":"trigger","topic":"timers","partition":3,"offset":18,"outcome":{"type":"decided"}}`},
		{[]string{"pause", "a\xff"}, nil, exitOK,
			`{"idBase64":"Yf8=","action":"pause","topic":"timers","partition":3,"offset":18}`},
		{[]string{"resume", "a1", "--wait"}, &commands.Outcome{Type: commands.NothingDone, EventsRead: true},
			exitError, `{"id":"a1","action":"resume","topic":"timers","partition":3,"offset":18,"outcome":{"type":"nothing-done"}}`},
	} {
		got := calls{outcome: c.outcome}
		code, stdout, stderr := runWith(&got, []string{config.EnvURL + "=http://127.0.0.1:1"}, "",
			append(c.args, "--json")...)
		if code != c.code || stdout != c.want+"\n" || (code == exitOK) != (stderr == "") {
			t.Errorf("%v: exit %d, %s%s, want %s", c.args, code, stdout, stderr, c.want)
		}
	}
}

// Each command that steers writes what it is named for.
func TestSteer(t *testing.T) {
	for _, action := range []commands.Action{commands.Cancel, commands.Trigger, commands.Pause, commands.Resume} {
		var c calls
		code, stdout, stderr := runWith(&c, nil, "", string(action), "--id", "a1", "--topic", "slow", "--if",
			"slow/3/17")
		want := "slow/a1 timer-" + string(action) + "=true timer-if=slow/3/17 null"
		if code != exitOK || written(t, &c.request) != want || c.request.Action != action || stdout != string(action)+
			" of a1 written to slow/3/18\n" {
			t.Errorf("%s: exit %d, %q, %q, %+v", action, code, stdout, stderr, c.request)
		}
	}
	for _, args := range [][]string{{"cancel", "a1"}, {"cancel", "--", "-a1"}, {"pause", "--if", "present", "a b"}} {
		var c calls
		id := args[len(args)-1]
		if code, _, stderr := runWith(&c, nil, "", args...); code != exitOK || c.request.ID != id {
			t.Errorf("%v: exit %d, %q, %+v", args, code, stderr, c.request)
		}
	}
	var c calls
	if code, _, stderr := runWith(&c, nil, "", "schedule", "--id", "a1", "--in", "1s", "--to", "x", "--if",
		"absent"); code != exitOK ||
		written(t, &c.request) != `timers/a1 timer-after=1000ms timer-if=absent timer-target-topic=x ""` {
		t.Errorf("schedule: exit %d, %q, %+v", code, stderr, c.request)
	}
}

func TestRequestTopic(t *testing.T) {
	for _, c := range []struct {
		name string
		env  []string
		args []string
		want string // empty: refused
	}{
		{"default", nil, nil, "timers"},
		{"flag", nil, []string{"--topic", "x"}, "x"},
		{"its other name", nil, []string{"--requests", "x"}, "x"},
		{"setting", []string{"WATERCLOCK_REQUESTS=slow"}, nil, "slow"},
		{"flag over setting", []string{"WATERCLOCK_REQUESTS=slow"}, []string{"--topic", "x"}, "x"},
		{"several", []string{"WATERCLOCK_REQUESTS=a,b"}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got calls
			code, _, stderr := runWith(&got, c.env, "", append([]string{"cancel", "--id", "a"}, c.args...)...)
			if got.request.Topic != c.want || (code == exitUsage) != (c.want == "") {
				t.Errorf("exit %d, topic %q, want %q; %s", code, got.request.Topic, c.want, stderr)
			}
		})
	}
}
