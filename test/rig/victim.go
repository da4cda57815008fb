package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
)

// envVictim makes a test binary be an instance instead of running tests: its value is the instance's configuration as
// JSON.
const envVictim = "WATERCLOCK_RIG_VICTIM"

// PlayVictim does not return if this process is a Victim. A package that starts victims calls it first in TestMain.
//
// The victim prints the address on which it serves HTTP. Each line that it reads releases what it holds. A line with
// the number of a kind of request makes it hold all requests of that kind from then on; it prints "holding", and "held"
// when the first one came. It ends when its standard input ends, and so with the test.
func PlayVictim() {
	text := os.Getenv(envVictim)
	if text == "" {
		return
	}
	var cfg config.Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		panic(err)
	}
	wire := kafkatest.NewWire()
	go obey(wire)
	err := node.RunWith(context.Background(), &cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)), node.Options{
		Dial:           wire.Dial,
		Started:        func(addr string) { fmt.Println(addr) },
		AccessInterval: noAccessCheck,
		// A pause outlasts the usual timeout. Then it is open whether a commit that was held goes out when the victim
		// goes on, or the step is aborted.
		CommitTimeout: Patience,
	})
	panic(fmt.Sprint("the victim's service ended: ", err))
}

const goOn = "go on"

func obey(wire *kafkatest.Wire) {
	var held *kafkatest.Fault
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if held != nil {
			held.Release()
		}
		if in.Text() == goOn {
			continue
		}
		key, err := strconv.ParseInt(in.Text(), 10, 16)
		if err != nil {
			panic(err)
		}
		held = wire.Hold(int16(key))
		fmt.Println("holding")
		go tellHeld(held)
	}
	os.Exit(0)
}

func tellHeld(held *kafkatest.Fault) {
	if err := held.Wait(context.Background()); err == nil {
		fmt.Println("held")
	}
}

// Victim is an instance in a process of the test binary, which holds requests to the brokers on command.
type Victim struct {
	*Process
	in    io.Writer
	lines chan string // what it has written to stdout
}

// victimSays limits how long a victim may take to answer.
const victimSays = time.Minute

// StartVictim starts a victim and returns once it serves HTTP. It is killed when the test ends, and what it logged is
// shown if the test failed.
func StartVictim(t testing.TB, cfg *config.Config) *Victim {
	t.Helper()
	text, err := json.Marshal(cfg)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(Environ(), envVictim+"="+string(text))
	v := &Victim{lines: make(chan string, 10)}
	v.in, err = cmd.StdinPipe()
	must(t, err)
	out, write, err := os.Pipe() // StdoutPipe would lose what is not read when the victim ends
	must(t, err)
	cmd.Stdout = write
	v.Process = run(t, cmd)
	_ = write.Close() // the victim has its own
	go func() {
		defer close(v.lines)
		defer out.Close()
		for s := bufio.NewScanner(out); s.Scan(); {
			v.lines <- s.Text()
		}
	}()
	v.url = "http://" + v.line()
	return v
}

func (v *Victim) line() string {
	v.t.Helper()
	select {
	case l, ok := <-v.lines:
		if !ok {
			v.t.Fatal("rig: the victim ended")
		}
		return l
	case <-time.After(victimSays):
		v.t.Fatal("rig: the victim says nothing")
	}
	return ""
}

func (v *Victim) tell(format string, args ...any) {
	v.t.Helper()
	if _, err := fmt.Fprintf(v.in, format+"\n", args...); err != nil {
		v.t.Fatalf("rig: tell the victim: %v", err)
	}
}

func (v *Victim) says(want string) {
	v.t.Helper()
	if l := v.line(); l != want {
		v.t.Fatalf("rig: the victim says %q, want %q", l, want)
	}
}

// Hold makes the victim hold its requests of a kind from now on, and releases what it held before. Each Hold must be
// followed by Held.
func (v *Victim) Hold(key int16) {
	v.t.Helper()
	v.tell("%d", key)
	v.says("holding")
}

// Held waits until the first request is held.
func (v *Victim) Held() {
	v.t.Helper()
	v.says("held")
}

// GoOn lets the process continue, and releases what it held.
func (v *Victim) GoOn() {
	v.t.Helper()
	v.Continue()
	v.tell(goOn)
}
