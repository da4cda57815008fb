package interleavings

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
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
)

// envVictim has the test binary be an instance that is to be killed instead of
// running tests: its value is the instance's configuration as JSON. It prints
// the address that it serves HTTP on. When it reads a line it holds its Produce
// requests, and prints a line when the first one is held. It ends with its
// standard input, hence with the test.
const envVictim = "WATERCLOCK_INTERLEAVINGS_VICTIM"

func playVictim() {
	var cfg config.Config
	if err := json.Unmarshal([]byte(os.Getenv(envVictim)), &cfg); err != nil {
		panic(err)
	}
	wire := kafkatest.NewWire()
	go func() {
		in := bufio.NewReader(os.Stdin)
		if _, err := in.ReadString('\n'); err != nil {
			os.Exit(0)
		}
		held := wire.Hold(kmsg.Produce.Int16())
		fmt.Println("holding")
		if err := held.Wait(context.Background()); err != nil {
			panic(err)
		}
		fmt.Println("held")
		_, _ = in.ReadString('\n')
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
	case <-time.After(patience):
		v.t.Fatal("the victim says nothing")
	}
	return ""
}

// hold makes the victim hold its produces from now on.
func (v *victim) hold() {
	v.t.Helper()
	fmt.Fprintln(v.in)
	if l := v.line(); l != "holding" {
		v.t.Fatalf("the victim says %q", l)
	}
}

// held waits until the first produce is held.
func (v *victim) held() {
	v.t.Helper()
	if l := v.line(); l != "held" {
		v.t.Fatalf("the victim says %q", l)
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
