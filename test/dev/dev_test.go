package dev

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// generous bounds lateness on a machine that has other work too.
const generous = 5 * time.Second

var firedLine = regexp.MustCompile(
	`(?m)^fired     demo-(\d) on topic demo: hello (\d) \(emitted (\S+) after it was due, received (\S+) after\)$`)

// checkDemo wants the demo timers in the output, each once and on time.
func checkDemo(t *testing.T, output string) {
	t.Helper()
	found := firedLine.FindAllStringSubmatch(output, -1)
	if len(found) != 3 {
		t.Fatalf("%d demo timers fired:\n%s", len(found), output)
	}
	for i, m := range found {
		n := fmt.Sprint(i + 1)
		emitted, err1 := time.ParseDuration(m[3])
		received, err2 := time.ParseDuration(m[4])
		if m[1] != n || m[2] != n || err1 != nil || err2 != nil || emitted < 0 || received < emitted-time.Millisecond ||
			received > generous {
			t.Errorf("demo timer %s: %q", n, m[0])
		}
		if !strings.Contains(output, "scheduled demo-"+n+" on topic timers, due in "+n+"s on topic demo\n") {
			t.Errorf("demo timer %s is not announced", n)
		}
	}
}

// runShown runs the commands that dev shows, as they stand there.
func runShown(t *testing.T, output string) {
	t.Helper()
	var commands []string
	for line := range strings.SplitSeq(output, "\n") {
		if command, ok := strings.CutPrefix(line, "  "); ok {
			commands = append(commands, command)
		}
	}
	wants := []string{"a1 written to timers/", tailing, "STATE", watching, "cancel of a1 written to timers/",
		"timers.waterclock.changelog"}
	if len(commands) != len(wants) {
		t.Fatalf("shows %d commands: %q", len(commands), commands)
	}
	for i, want := range wants {
		switch want {
		case watching:
			sees(t, commands[i], "replaced a1", commands[0])
			continue
		case tailing:
			sees(t, commands[i]+" 2>&1", "topic orders", "true")
			continue
		}
		if code, out := run(t, exec.Command("sh", "-c", commands[i])); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s exits %d:\n%s", commands[i], code, out)
		}
	}
}

// watching and tailing stand for what commands print that go on until they are ended.
const watching, tailing = "watching", "tailing"

// sees runs a command that goes on until it is ended, and another one again and again
// until the first has printed what is wanted.
func sees(t *testing.T, command, want, other string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec "+command)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() && !strings.Contains(lines.Text(), want) {
		}
		seen <- lines.Err() == nil
	}()
	await.Until(t, patience, command+" shows "+want, func() bool {
		run(t, exec.Command("sh", "-c", other))
		return len(seen) > 0
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// request is a record as any client would write it, without our package.
func request(id, value string, headers ...string) *kgo.Record {
	r := &kgo.Record{Topic: "timers", Key: []byte(id), Value: []byte(value)}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return r
}

// TestDevFirstAndSecondStart goes through the demo, the commands that are shown,
// a plain client, a stop by SIGTERM while timers are pending (one falls due
// meanwhile, one is cancelled), and a second start on the same directory.
func TestDevFirstAndSecondStart(t *testing.T) {
	t.Parallel()
	drivesProcesses(t)
	addr, dir := rig.FreeAddr(t), t.TempDir()
	start := func() *rig.Process {
		p := rig.Start(t, "dev", "--listen", addr, "--data-dir", dir)
		await.Until(t, patience, "commands to try",
			func() bool { return strings.Contains(p.Output(), "Ctrl-C stops.") })
		checkDemo(t, p.Output())
		if !strings.Contains(p.Output(), "on "+addr+", data in "+dir+"\n") ||
			!strings.Contains(p.Output(), "isolation.level=read_committed") {
			t.Errorf("does not say where it listens, or how to consume:\n%s", p.Output())
		}
		if !strings.Contains(p.Output(), "HTTP API on http://127.0.0.1:") {
			t.Errorf("does not say where its API is:\n%s", p.Output())
		}
		return p
	}
	first := start()
	if strings.Contains(first.Output(), "from earlier") {
		t.Errorf("a new directory has timers:\n%s", first.Output())
	}
	runShown(t, first.Output()) // leaves a1 cancelled, 10 s before it is due

	cl := client(t, addr)
	down := time.Now().Add(6 * time.Second)
	late := time.Now().Add(14 * time.Second)
	rig.Send(t, cl,
		request("plain", "p", "timer-after", "1s", "timer-target-topic", "orders", "trace", "17"),
		request("cancelled", "c", "timer-after", "5s", "timer-target-topic", "orders"),
		&kgo.Record{Topic: "timers", Key: []byte("cancelled")},
		request("down", "d", "timer-at", down.UTC().Format(time.RFC3339Nano), "timer-target-topic", "orders"),
		request("late", "l", "timer-at", fmt.Sprint(late.UnixMilli()), "timer-target-topic", "orders"),
		request("chained", "c", "timer-after", "1s", "timer-target-topic", "timers"),
		request("misspelt", "m", "timer-aftr", "1s", "timer-target-topic", "orders"),
	)
	before := consume(t, addr, "orders")
	await.Until(t, patience, "plain fires", func() bool { return before.has("plain") })
	for _, want := range []string{
		"refused   misspelt: unknown-header: ", "refused   chained: target-not-allowed: ",
		"fired     plain on topic orders: p (emitted ",
		"scheduled plain on topic timers, due ", "scheduled a1 on topic timers, due in ",
		"cancel    a1 on topic timers\n", "cancel    cancelled on topic timers\n",
	} {
		await.Until(t, patience, want, func() bool { return strings.Contains(first.Output(), want) })
	}
	first.Settled()
	first.Term()
	if code := first.Exit(patience); code != 0 || !strings.HasSuffix(first.Output(),
		"stopped; timers and topics are kept in "+dir+"\n") {
		t.Errorf("SIGTERM: exit %d\n%s", code, first.Output())
	}
	if before.has("down") {
		t.Log("slow machine: what was to fall due after the stop fired before it; its count still holds")
	}
	if strings.Contains(first.Output(), "scheduled chained") {
		t.Error("what is refused is shown as scheduled too")
	}
	if n := strings.Count(first.Output(), "unknown-header"); n != 1 {
		t.Errorf("a refusal is shown %d times", n)
	}
	if n := strings.Count(first.Output(), "scheduled demo-1 "); n != 1 {
		t.Errorf("the demo's first timer is announced %d times", n)
	}
	<-time.After(time.Until(down))

	second := start()
	if !regexp.MustCompile(`(?m)^timers pending from earlier: [12]$`).MatchString(second.Output()) {
		t.Errorf("says nothing of pending timers:\n%s", second.Output())
	}
	after := consume(t, addr, "orders", "demo")
	await.Until(t, patience, "late fires", func() bool { return after.has("late") })
	<-time.After(time.Second) // for what must not come: a1 was due before late
	all := after.all(t)
	for id, n := range map[string]int{"plain": 1, "down": 1, "late": 1, "demo-1": 2, "demo-2": 2, "demo-3": 2} {
		if len(all[id]) != n {
			t.Errorf("%s came %d times, want %d", id, len(all[id]), n)
		}
		delete(all, id)
	}
	if len(all) > 0 {
		t.Errorf("also came: %v", all)
	}
	second.Settled()
	second.Term()
	if code := second.Exit(patience); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}
}

// TestDevRefusals: what a second dev says that finds its directory or an address
// taken, while the first one goes on.
func TestDevRefusals(t *testing.T) {
	t.Parallel()
	drivesProcesses(t)
	listen, dir := rig.FreeAddr(t), t.TempDir()
	first := rig.Start(t, "dev", "--listen", listen, "--data-dir", dir, "--demo=false")
	await.Until(t, patience, "commands to try",
		func() bool { return strings.Contains(first.Output(), "Ctrl-C stops.") })
	if strings.Contains(first.Output(), "scheduled") {
		t.Errorf("--demo=false schedules:\n%s", first.Output())
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		name, listen, http, dir string
		args                    []string
		code                    int
		want                    string
	}{
		{"directory", rig.FreeAddr(t), "", dir, nil, 1, "another process works in " + dir +
			"; stop it, or choose another directory with --data-dir"},
		{"broker's address", listen, "", t.TempDir(), nil, 1, "another process has taken " + listen +
			"; choose another address with --listen"},
		{"address of HTTP", rig.FreeAddr(t), taken.Addr().String(), t.TempDir(), nil, 1, "another process has taken " +
			taken.Addr().String() + "; choose another address with --http"},
		{"unknown flag", rig.FreeAddr(t), "", t.TempDir(), []string{"--port", "9"}, 2,
			"unknown flag: --port; see waterclock dev --help"},
		{"an argument", rig.FreeAddr(t), "", t.TempDir(), []string{"now"}, 2,
			`waterclock dev takes flags only, not "now"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"dev", "--listen", c.listen, "--http", c.http, "--api", "127.0.0.1:0", "--data-dir",
				c.dir}, c.args...)
			code, out := run(t, exec.Command(rig.Binary(t), args...))
			if code != c.code || !strings.HasPrefix(out, "waterclock: ") || !strings.Contains(out, c.want) ||
				strings.Count(out, "\n") != 1 {
				t.Errorf("exit %d: %q, want %d: %q", code, out, c.code, c.want)
			}
		})
	}
	cl := client(t, listen)
	rig.Send(t, cl, request("still-here", "v", "timer-after", "100ms", "timer-target-topic", "orders"))
	c := consume(t, listen, "orders")
	await.Until(t, patience, "the first dev goes on", func() bool { return c.has("still-here") })
	if n := len(c.all(t)["still-here"]); n != 1 {
		t.Errorf("%d emissions", n)
	}
	for _, want := range []string{"scheduled still-here on topic timers, due ",
		"fired     still-here on topic orders: v "} {
		await.Until(t, patience, "without the demo it prints "+want,
			func() bool { return strings.Contains(first.Output(), want) })
	}
}

// TestScheduleRefusals: what the command line says of requests that cannot be
// sent, and how it exits.
func TestScheduleRefusals(t *testing.T) {
	t.Parallel()
	drivesProcesses(t)
	listen := rig.FreeAddr(t)
	p := rig.Start(t, "dev", "--listen", listen, "--data-dir", t.TempDir(), "--demo=false")
	await.Until(t, patience, "commands to try", func() bool { return strings.Contains(p.Output(), "Ctrl-C stops.") })
	for _, c := range []struct {
		name, brokers, to string
		args              []string
		code              int
		want              string
	}{
		{"no broker", rig.FreeAddr(t), "orders", nil, 1, "no broker can be reached at 127.0.0.1:"},
		{"bad target", listen, "a b", nil, 2, `"a b" cannot be the name of a topic`},
		{"bad request topic", listen, "orders", []string{"--topic", "a b"}, 2,
			`request topic "a b" cannot be the name of a topic`},
		{"reserved header", listen, "orders", []string{"--header", "timer-aftr=1s"}, 2,
			`"timer-aftr": there is no such header; did you mean timer-after, which --in sets?`},
		{"no request topic", listen, "orders", []string{"--topic", "tmers"}, 1,
			"there is no topic tmers; create it, or choose another request topic with --topic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"schedule", "--brokers", c.brokers, "--in", "1h", "--to", c.to}, c.args...)
			code, out := run(t, exec.Command(rig.Binary(t), args...))
			if code != c.code || !strings.HasPrefix(out, "waterclock: ") || !strings.Contains(out, c.want) ||
				strings.Count(out, "\n") != 1 {
				t.Errorf("exit %d: %q, want %d: %q", code, out, c.code, c.want)
			}
		})
	}
}

// TestDevKilledWhilePending: kill -9 with timers pending for a topic that was
// made on first use and holds emissions, and a second start on the same directory.
// The embedded broker used to forget such a topic, and wrote another one over
// its data. (A kill in the middle of a transaction is another matter: the
// embedded broker writes a commit to one partition after the other.)
func TestDevKilledWhilePending(t *testing.T) {
	t.Parallel()
	drivesProcesses(t)
	const timers = 100
	addr, dir := rig.FreeAddr(t), t.TempDir()
	start := func() *rig.Process {
		p := rig.Start(t, "dev", "--listen", addr, "--data-dir", dir, "--demo=false")
		await.Until(t, patience, "commands to try",
			func() bool { return strings.Contains(p.Output(), "Ctrl-C stops.") })
		return p
	}
	first := start()
	cl := client(t, addr)
	due := fmt.Sprint(time.Now().Add(8 * time.Second).UnixMilli())
	var records []*kgo.Record
	for i := range timers {
		records = append(
			records, request(fmt.Sprint("early-", i), "v", "timer-after", "1ms", "timer-target-topic", "orders"),
			request(fmt.Sprint("late-", i), "v", "timer-at", due, "timer-target-topic", "orders"))
	}
	rig.Send(t, cl, records...)
	before := consume(t, addr, "orders")
	await.Until(t, patience, "half have fired and half are pending", func() bool {
		return before.count() >= timers && first.Metric("waterclock_pending_timers") == timers
	})
	first.Kill()

	second := start()
	after := consume(t, addr, "orders")
	await.Until(t, patience, "all have fired", func() bool { return after.count() >= 2*timers })
	<-time.After(500 * time.Millisecond) // for what must not come
	all := after.all(t)
	if len(all) != 2*timers || after.count() != 2*timers {
		t.Errorf("%d timers in %d emissions, want %d", len(all), after.count(), 2*timers)
	}
	second.Settled()
	second.Term()
	if code := second.Exit(patience); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}
}
