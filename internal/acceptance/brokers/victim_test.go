package brokers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
)

// envVictim has the test binary be an instance instead of running tests: its
// value is the instance's configuration as JSON. It prints the address that it
// serves HTTP on. When it reads a line it releases what it holds, and unless that
// says to go on holds its EndTxn requests, and prints a line when the first one is
// held: a step is open, everything of it written. It ends with its standard
// input, hence with the test.
const envVictim = "WATERCLOCK_BROKERS_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(envVictim) != "" {
		playVictim()
		return
	}
	kafkatest.Main(m)
}

func playVictim() {
	var cfg config.Config
	if err := json.Unmarshal([]byte(os.Getenv(envVictim)), &cfg); err != nil {
		panic(err)
	}
	wire := kafkatest.NewWire()
	go func() {
		var held *kafkatest.Fault
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			if held != nil {
				held.Release()
			}
			if in.Text() == "go on" {
				continue
			}
			held = wire.Hold(kmsg.EndTxn.Int16())
			if err := held.Wait(context.Background()); err != nil {
				panic(err)
			}
			fmt.Println("held")
		}
		os.Exit(0)
	}()
	err := service.RunWith(context.Background(), &cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)), service.Options{
		Dial:    wire.Dial,
		Started: func(addr string) { fmt.Println(addr) },
	})
	panic(fmt.Sprint("the victim's service ended: ", err))
}

// victim is such a process.
type victim struct {
	*rig.Web
	t     testing.TB
	cmd   *exec.Cmd
	in    io.Writer
	lines chan string
	dead  bool
}

func startVictim(t testing.TB, cfg *config.Config) *victim {
	t.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	v := &victim{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 10)}
	v.cmd.Env = append(os.Environ(), envVictim+"="+string(text))
	said := &strings.Builder{}
	v.cmd.Stderr = said
	if v.in, err = v.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		v.kill()
		if t.Failed() {
			t.Logf("the victim wrote:\n%s", said)
		}
	})
	go func() {
		defer close(v.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			v.lines <- s.Text()
		}
	}()
	v.Web = rig.At(t, v.line())
	return v
}

func (v *victim) line() string {
	v.t.Helper()
	select {
	case l, ok := <-v.lines:
		if !ok {
			v.t.Fatal("the victim ended")
		}
		return l
	case <-time.After(time.Minute):
		v.t.Fatal("the victim says nothing")
	}
	return ""
}

// longStep is how long no step takes that is not held.
const longStep = 400 * time.Millisecond

// openStep has the victim stop before the end of a step that wrote to topic, and
// returns when it has.
func (v *victim) openStep(c *kafkatest.Cluster, group, topic string) {
	v.t.Helper()
	adm := c.Admin(v.t)
	for {
		fmt.Fprintln(v.in, "hold")
		if l := v.line(); l != "held" {
			v.t.Fatalf("the victim says %q", l)
		}
		wait(v.t, longStep)
		open, err := adm.ListTransactions(v.t.Context(), nil, []string{"Ongoing"})
		if err != nil {
			v.t.Fatalf("list transactions: %v", err)
		}
		for id := range open {
			if !strings.HasPrefix(id, emitter.TransactionalIDPrefix(group)) || open[id].State != "Ongoing" {
				continue
			}
			d, err := adm.DescribeTransactions(v.t.Context(), id)
			if err != nil {
				v.t.Fatalf("describe transactions: %v", err)
			}
			if d[id].State == "Ongoing" && time.Since(time.UnixMilli(d[id].StartTimestamp)) > longStep*3/4 && d[id].Topics[topic] != nil {
				return
			}
		}
	}
}

// kill is kill -9.
func (v *victim) kill() {
	if !v.dead {
		v.dead = true
		_ = v.cmd.Process.Kill()
		for range v.lines {
		}
		_ = v.cmd.Wait()
	}
}

// pause stops the process where it stands.
func (v *victim) pause() { v.signal(syscall.SIGSTOP) }

// goOn lets it go on, and what it held with it.
func (v *victim) goOn() {
	v.signal(syscall.SIGCONT)
	fmt.Fprintln(v.in, "go on")
}

func (v *victim) signal(s syscall.Signal) {
	if err := v.cmd.Process.Signal(s); err != nil {
		v.t.Errorf("signal the victim: %v", err)
	}
}
