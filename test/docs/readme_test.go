package docs

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

// The broker, the API and the directory that the README speaks of. They stand for those of the test: that is all that
// is changed in a block.
const (
	readmeAddr = "127.0.0.1:9092"
	readmeAPI  = "127.0.0.1:8681"
	readmeDir  = "waterclock-dev/"
)

// reader runs the blocks of the README one after the other, as somebody would who follows it: against dev, or against a
// real broker where it says so.
type reader struct {
	bin, home    string
	dev, devHTTP string   // addresses of dev's broker and its HTTP
	devAPI       string   // address of dev's API
	devDir       string   // its directory
	http         string   // of the instance of a block
	fires        []string // timers that must fire on dev's topic orders
}

// env moves addresses and directories away from their defaults, which others may use, and finds what go install has
// installed.
func (r *reader) env(broker string, more ...string) []string {
	return append(environ(
		"GOBIN="+r.bin, "PATH="+r.bin+string(os.PathListSeparator)+os.Getenv("PATH"), "WATERCLOCK_BROKERS="+broker,
		"WATERCLOCK_URL=http://"+r.devAPI,
	), more...)
}

// shell is a block as a command. exec makes its exit code that of its last command; a block that is a server has just
// one.
func (r *reader) shell(b block, broker string, more ...string) *exec.Cmd {
	text := strings.NewReplacer(readmeAddr, broker, readmeAPI, r.devAPI, readmeDir, r.devDir+"/").Replace(b.text)
	if len(more) > 0 {
		text = "exec " + text
	}
	cmd := exec.Command("bash", "-e", "-c", text)
	cmd.Dir, cmd.Env = root, r.env(broker, more...)
	return cmd
}

// TestReadme runs every block of the documents but those that say why not, each with the servers of the ones before it
// still running.
func TestReadme(t *testing.T) {
	t.Parallel()
	r := &reader{
		bin: t.TempDir(), home: t.TempDir(), dev: rig.FreeAddr(t), devHTTP: rig.FreeAddr(t), devAPI: rig.FreeAddr(t),
		devDir: t.TempDir(),
	}
	kinds := map[string]func(*testing.T, block){
		"run": r.plain, "run: curl": r.curl, "run: real serve": r.realServe, "run: config": r.config,
		"run: real broker": r.realBroker, "run: java": r.java, "run: python": r.python, "run: kcat": r.kcat,
	}
	seen := make(map[string]int)
	// In the order in which somebody would read them.
	blocks := slices.Concat(marked(t, "README.md"), marked(t, reference), marked(t, configuration))
	for _, b := range blocks {
		seen[b.mark]++
		if reason, ok := strings.CutPrefix(b.mark, "not run: "); ok {
			t.Logf("%s is not run: %s\n%s", b.at, reason, b.text)
			continue
		}
		switch b.mark { // these run until all blocks are done
		case "run: dev":
			r.startDev(t, b)
			continue
		case "run: serve":
			r.startSecond(t, b)
			t.Run("two instances", r.together)
			continue
		}
		do := kinds[b.mark]
		if do == nil {
			t.Fatalf("%s: the comment %q is none that this test knows", b.at, b.mark)
		}
		name, _, _ := strings.Cut(b.text, "\n")
		t.Run(b.mark+" "+name, func(t *testing.T) { do(t, b) })
	}
	for _, kind := range append(slices.Collect(maps.Keys(kinds)), "run: dev", "run: serve") {
		if seen[kind] == 0 {
			t.Errorf("the documents have no block %q", kind)
		}
	}
	r.checkFired(t)
	r.waterclock(t, "all add up\n", "audit", "--config", filepath.Join(r.devDir, "serve.yaml"))
}

// startDev runs a block that is a server, which needs no more than the ports of its own.
func (r *reader) startDev(t *testing.T, b block) {
	t.Helper()
	p := startServer(t, r.shell(b, r.dev, "WATERCLOCK_LISTEN="+r.dev, "WATERCLOCK_HTTP="+r.devHTTP,
		"WATERCLOCK_API="+r.devAPI, "WATERCLOCK_DATA_DIR="+r.devDir))
	t.Cleanup(func() {
		p.stop(t, syscall.SIGINT) // Ctrl-C, as the README says
		if !strings.Contains(p.out.String(), "stopped; timers and topics are kept in ") {
			t.Errorf("dev was not stopped in order:\n%s", p.out)
		}
	})
	until(t, "dev shows commands",
		func() bool { return strings.Contains(p.out.String(), ready) })
	checkDemo(t, p.out.String())
	if !strings.Contains(p.out.String(), "  go run ./cmd/waterclock schedule --brokers "+r.dev) {
		t.Errorf("the commands shown are not called as dev was:\n%s", p.out)
	}
}

// startSecond runs a block that is another instance beside dev.
func (r *reader) startSecond(t *testing.T, b block) {
	t.Helper()
	addr := rig.FreeAddr(t)
	p := startServer(t, r.shell(b, r.dev, "WATERCLOCK_HTTP="+addr))
	t.Cleanup(func() {
		if code := p.stop(t, syscall.SIGTERM); code != 0 {
			t.Errorf("SIGTERM: exit %d\n%s", code, p.out)
		}
	})
	rig.At(t, addr).Ready(2, patience) // half of them
	rig.At(t, r.devHTTP).Ready(2, patience)
}

// together wants two instances to be one service: whichever owns a timer's partition, it is scheduled, shown and
// cancelled by the API of dev, and its target is created on first use.
func (r *reader) together(t *testing.T) {
	const timers = 12 // on all partitions
	fresh := []string{"fresh-0", "fresh-1", "fresh-2", "fresh-3"}
	var ids []string
	for n := range timers {
		ids = append(ids, fmt.Sprint("both-", n))
		out := r.waterclock(t, "", "status", "--json")
		if strings.Contains(out, `"problem"`) {
			t.Errorf("an instance cannot be asked:\n%s", out)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+r.devAPI+
			"/v1/topics/timers/timers/"+ids[n], strings.NewReader("v"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("timer-after", "1h")
		req.Header.Set("timer-target-topic", "orders")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Errorf("PUT %s: %s", ids[n], resp.Status)
		}
	}
	r.waterclock(t, fmt.Sprint(timers, "\n"), "count", "--prefix", "both-")
	for n, id := range ids {
		r.waterclock(t, "pending", "get", id)
		r.waterclock(t, "written", "schedule", "--id", "now-"+id, "--in", "0s", "--to", fresh[n%len(fresh)],
			"--value", "v")
		if n%2 == 0 {
			r.waterclock(t, "cancelled", "cancel", id, "--wait")
		}
	}
	r.waterclock(t, "6 changed", "cancel", "--prefix", "both-", "--yes")
	r.waterclock(t, "0\n", "count", "--prefix", "both-")
	fired := consume(t, r.dev, fresh...)
	for _, id := range ids {
		fires(t, fired, "now-"+id)
	}
}

// waterclock runs a command, which must succeed, and returns what it prints. That must contain a text.
func (r *reader) waterclock(t *testing.T, want string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(r.bin, "waterclock"), args...)
	cmd.Env = r.env(r.dev)
	code, out := run(t, cmd)
	if code != 0 || !strings.Contains(out, want) {
		t.Errorf("waterclock %s: exit %d, want %q:\n%s", strings.Join(args, " "), code, want, out)
	}
	return out
}

func (r *reader) curl(t *testing.T, b block) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skipf("no curl to run the block with: %v", err)
	}
	r.plain(t, b)
}

func (r *reader) plain(t *testing.T, b block) {
	code, out := run(t, r.shell(b, r.dev))
	if code != 0 {
		t.Errorf("exit %d:\n%s", code, out)
	}
	r.expect(b, "a1", "b1", "b2") // b2 is triggered
}

// expect notes those timers of a block that fire while the test runs.
func (r *reader) expect(b block, ids ...string) {
	for _, id := range ids {
		if strings.Contains(b.text, id+" ") || strings.Contains(b.text, `"`+id+`"`) {
			r.fires = append(r.fires, id)
		}
	}
}

func (r *reader) realServe(t *testing.T, b block) {
	c := kafkatest.Shared(t)
	c.CreateTopic(t, 4, nil, "timers")
	c.CreateTopic(t, 2, nil, "orders")
	r.serves(t, r.shell(b, c.Seeds()[0], r.member(t)...), c.Seeds()[0], "served")
}

// config gives the file to serve.
func (r *reader) config(t *testing.T, b block) {
	c := kafkatest.Shared(t)
	file := filepath.Join(r.home, "waterclock.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(b.text, readmeAddr, c.Seeds()[0])), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(r.bin, "waterclock"), "serve", "--config", file)
	cmd.Env = environ(r.member(t)...)
	r.serves(t, cmd, c.Seeds()[0], "configured")
}

// member is the environment of an instance.
func (r *reader) member(t *testing.T) []string {
	r.http = rig.FreeAddr(t)
	return []string{"WATERCLOCK_HTTP=" + r.http, "WATERCLOCK_DATA_DIR=" + t.TempDir()}
}

// serves wants an instance to become ready, to fire, and to stop in order.
func (r *reader) serves(t *testing.T, cmd *exec.Cmd, broker, id string) {
	t.Helper()
	p := startServer(t, cmd)
	rig.At(t, r.http).Ready(4, patience)
	cl := client(t, broker)
	rig.Send(t, cl, request(id, "v", "timer-after", "100ms", "timer-target-topic", "orders"))
	c := consume(t, broker, "orders")
	fires(t, c, id)
	if n := len(rig.Emissions(t, c.Records())[id]); n != 1 {
		t.Errorf("%d emissions", n)
	}
	rig.At(t, r.http).Settled()
	if code := p.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM: exit %d\n%s", code, p.out)
	}
}

func (r *reader) realBroker(t *testing.T, b block) {
	c := kafkatest.Shared(t)
	if code, out := run(t, r.shell(b, c.Seeds()[0])); code != 0 ||
		!strings.Contains(out, "timers.waterclock.changelog") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

func (r *reader) java(t *testing.T, b block) {
	kafkatest.Shared(t) // has fetched the jars, or skips and says why
	libs := os.Getenv("WATERCLOCK_KAFKA_LIBS")
	if libs == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		libs = filepath.Join(cache, "waterclock", "kafka-*")
	}
	jars, err := filepath.Glob(filepath.Join(libs, "*.jar"))
	if err != nil || len(jars) == 0 {
		t.Fatalf("no jars in %s: %v", libs, err)
	}
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	r.program(t, b, "Send.java", java, "-cp", strings.Join(jars, string(os.PathListSeparator)))
	r.expect(b, "from-java")
}

func (r *reader) python(t *testing.T, b block) {
	r.program(t, b, "send.py", rig.Python(t, rig.Confluent))
	r.expect(b, "from-python")
}

// program runs a block that is a source file.
func (r *reader) program(t *testing.T, b block, name string, command ...string) {
	t.Helper()
	file := filepath.Join(r.home, name)
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(b.text, readmeAddr, r.dev)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := run(t, exec.Command(command[0], append(command[1:], file)...)); code != 0 {
		t.Fatalf("exit %d:\n%s", code, out)
	}
}

func (r *reader) kcat(t *testing.T, b block) {
	rig.Kcat(t)
	if code, out := run(t, r.shell(b, r.dev)); code != 0 {
		t.Fatalf("exit %d:\n%s", code, out)
	}
	r.expect(b, "from-kcat")
}

// checkFired wants on dev's topic orders just what the blocks have scheduled for now, each once, and every key on its
// murmur2 partition.
func (r *reader) checkFired(t *testing.T) {
	t.Helper()
	if len(r.fires) < 2 {
		t.Fatalf("blocks have scheduled %v, want a1 and b1 at least", r.fires)
	}
	c := consume(t, r.dev, "orders")
	for _, id := range r.fires {
		fires(t, c, id)
	}
	c.Quiet(time.Second)
	all := rig.Emissions(t, c.Records())
	for _, id := range r.fires {
		if len(all[id]) != 1 {
			t.Errorf("%s came %d times", id, len(all[id]))
		}
	}
	if len(all) != len(r.fires) {
		t.Errorf("came: %v, want %v", all, r.fires)
	}
	rig.At(t, r.devHTTP).Settled()
	if n := rig.At(t, r.devHTTP).Metric("waterclock_misplaced_requests_total"); n > 0 {
		t.Errorf("%v requests are not on the partition of their key's murmur2", n)
	}
	if v := string(all["a1"][0].Value); v != `{"order":17}` {
		t.Errorf("a1 has value %s", v)
	}
	if v := all["b1"][0].Header("trace"); v != "17" {
		t.Errorf("b1 has trace %s", v)
	}
}
