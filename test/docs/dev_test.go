package docs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
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

// sees runs a command that goes on until it is ended, and another one again and again until the first has printed what
// is wanted.
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
	until(t, command+" shows "+want, func() bool {
		run(t, exec.Command("sh", "-c", other))
		return len(seen) > 0
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// TestDevFirstAndSecondStart goes through the demo, the commands that are shown, a plain client, a stop by SIGTERM
// while timers are pending (one falls due meanwhile, one is cancelled), and a second start on the same directory.
func TestDevFirstAndSecondStart(t *testing.T) {
	t.Parallel()
	addr, dir := rig.FreeAddr(t), t.TempDir()
	start := func() *rig.Process {
		p := startDev(t, addr, dir)
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
	fires(t, before, "plain")
	for _, want := range []string{
		"refused   misspelt: unknown-header: ", "refused   chained: target-not-allowed: ",
		"fired     plain on topic orders: p (emitted ",
		"scheduled plain on topic timers, due ", "scheduled a1 on topic timers, due in ",
		"cancel    a1 on topic timers\n", "cancel    cancelled on topic timers\n",
	} {
		until(t, want, func() bool { return strings.Contains(first.Output(), want) })
	}
	first.Settled()
	first.Term()
	if code := first.Exit(patience); code != 0 || !strings.HasSuffix(first.Output(),
		"stopped; timers and topics are kept in "+dir+"\n") {
		t.Errorf("SIGTERM: exit %d\n%s", code, first.Output())
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
	fires(t, after, "late")
	after.Quiet(time.Second) // a1 was due before late
	all := rig.Emissions(t, after.Records())
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

// probe runs the health check that docker-compose.yml has for the broker, against an address of this machine.
func probe(t *testing.T, address string) error {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct{ Healthcheck struct{ Test []string } }
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	test := compose.Services["kafka"].Healthcheck.Test
	script := strings.ReplaceAll(test[len(test)-1], "$$", "$")
	there := strings.Replace(script, "/dev/tcp/127.0.0.1/9092", "/dev/tcp/"+strings.Replace(address, ":", "/", 1), 1)
	if len(test) != 4 || test[0] != "CMD" || there == script {
		t.Fatalf("the health check is %q", test)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, test[1], test[2], there).Run()
}

// TestComposeHealthcheck asks a real broker, nobody, and servers that are no broker or know of none yet.
func TestComposeHealthcheck(t *testing.T) {
	if err := probe(t, kafkatest.Shared(t).Seeds()[0]); err != nil {
		t.Errorf("a broker is not healthy: %v", err)
	}
	for name, answer := range map[string]string{
		"nothing":    "",
		"no brokers": "\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00",
		"HTTP":       "HTTP/1.1 400 Bad Request\r\n\r\n",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.ReadFull(conn, make([]byte, 18)) // the request
				_, _ = io.WriteString(conn, answer)
				_ = conn.Close()
			}
		}()
		if probe(t, l.Addr().String()) == nil {
			t.Errorf("%s: healthy", name)
		}
		_ = l.Close()
		if probe(t, l.Addr().String()) == nil {
			t.Errorf("%s: healthy though nobody listens", name)
		}
	}
}
