package docs

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// kafkaTools are Kafka's scripts, and the class that each of them runs.
var kafkaTools = map[string]string{
	"kafka-configs.sh":         "kafka.admin.ConfigCommand",
	"kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
	"kafka-get-offsets.sh":     "org.apache.kafka.tools.GetOffsetShell",
	"kafka-topics.sh":          "org.apache.kafka.tools.TopicCommand",
	"kafka-transactions.sh":    "org.apache.kafka.tools.TransactionsCommand",
}

// Stand-ins for systemd, which act on the machine of the test.
var standIns = map[string]string{
	"systemctl":  `test "$2" = waterclock && exec curl -sS --fail-with-body -X POST "$MACHINE/$1"`,
	"journalctl": `test "$1 $2" = "-u waterclock" && exec curl -sS "$MACHINE/log"`,
}

// looks are commands that change nothing: they are repeated until they show what they should.
var looks = regexp.MustCompile(
	`^(curl|journalctl|kcat -C|waterclock (status|dead-letters (count|list)))\b|^kafka-\S+ .*--describe\b|^waterclock topics --config \$CONFIG$`)

// operator runs commands as somebody would who follows a document.
type operator struct {
	t      *testing.T
	dir    string            // where the operator is
	names  map[string]string // of the environment
	byHand map[string]func() // what is done by other means
}

// newOperator returns an operator at this machine.
func newOperator(t *testing.T, m *machine) *operator {
	t.Helper()
	rig.Kcat(t)
	bin := t.TempDir()
	if err := os.Symlink(rig.Binary(t), filepath.Join(bin, "waterclock")); err != nil {
		t.Fatal(err)
	}
	scripts := maps.Clone(standIns)
	for name, class := range kafkaTools {
		var line strings.Builder
		line.WriteString("exec")
		for _, arg := range rig.Tool(t, class).Args {
			line.WriteString(" '" + arg + "'")
		}
		scripts[name] = line.String() + ` "$@"`
	}
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &operator{t: t, dir: t.TempDir(), byHand: map[string]func(){}, names: map[string]string{
		"PATH": bin + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME": os.Getenv("HOME"),
		"no_proxy": "127.0.0.1", "MACHINE": m.server.URL,
		"BROKERS": strings.Join(m.brokers, ","), "TOPIC": m.requests, "GROUP": m.group, "INSTANCE": m.http,
		"WATERCLOCK_URL": "http://" + m.api, "CONFIG": m.config, "DATA": m.data,
	}}
}

// follow does what a section of the runbook says.
func (o *operator) follow(name string) {
	o.t.Helper()
	for _, s := range find(o.t, runbook, name).steps(o.t) {
		o.do(s)
	}
}

func (o *operator) do(s step) {
	o.t.Helper()
	if s.byHand {
		o.t.Logf("# %s", s.text)
		do := o.byHand[s.text]
		if do == nil {
			o.t.Fatalf("%s: nobody knows how to %q", s.at, s.text)
		}
		do()
		return
	}
	if args, ok := strings.CutPrefix(s.text, "waterclock serve "); ok { // it does not end by itself
		o.t.Logf("$ %s", s.text)
		p := rig.Exec(o.t, nil, append([]string{"serve"}, strings.Fields(os.Expand(args, o.value))...)...)
		rig.At(o.t, o.value("INSTANCE")).Ready(partitions, patience)
		p.Term()
		p.Exit(patience)
		return
	}
	var out string
	var err error
	begun := time.Now()
	shown := func() bool {
		out, err = o.run(s.text)
		return o.lacks(s, out) == "" && (err == nil || len(s.shows) > 0)
	}
	if !shown() && looks.MatchString(s.text) {
		await.Within(patience, shown)
	}
	o.t.Logf("$ %s\n%s(%s)", s.text, out, time.Since(begun).Round(time.Millisecond))
	if lacking := o.lacks(s, out); lacking != "" {
		o.t.Fatalf("%s: %s does not show %q: %v", s.at, s.text, lacking, err)
	}
	if err != nil && len(s.shows) == 0 { // what is shown may be bad news, and say so by the exit code
		o.t.Fatalf("%s: %s: %v", s.at, s.text, err)
	}
}

// lacks is what a command should show and does not.
func (o *operator) lacks(s step, out string) string {
	for _, want := range s.shows {
		rest := out
		for part := range strings.SplitSeq(os.Expand(want, o.value), "…") {
			at := strings.Index(rest, part)
			if at < 0 {
				return part
			}
			rest = rest[at+len(part):]
		}
	}
	return ""
}

// value is that of a name of the environment.
func (o *operator) value(name string) string {
	o.t.Helper()
	value, ok := o.names[name]
	if !ok {
		o.t.Fatalf("$%s is not set", name)
	}
	return value
}

// run runs a command in a shell of its own and returns what it prints.
func (o *operator) run(command string) (string, error) {
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-uc", command)
	cmd.Dir = o.dir
	for name, value := range o.names {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
