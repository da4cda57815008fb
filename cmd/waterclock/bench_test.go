package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/bench"
)

func TestBenchUsage(t *testing.T) {
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"no instance to measure", "requests needs the request topic", []string{"life"}},
		{"too many timers", "timers is", []string{"life", "--local", "--timers", "1000000000"}},
		{"events of others", "events is", []string{"life", "--requests", "timers", "--events"}},
		{"no rate", "rates is", []string{"steady", "--local", "--rates", "0"}},
		{"nothing pending", "timers is", []string{"restart", "--pending", "0"}},
		{"no step", "transaction-sizes is", []string{"life", "--local", "--transaction-sizes", "0"}},
		{"no directory", "--data-dir", []string{"life", "--local", "--data-dir", t.TempDir() + "/missing"}},
		{"unknown flag", "unknown flag: --fast", []string{"steady", "--fast"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"bench"}, c.args...)
			if c.name != "unknown flag" {
				args = append(args, "--brokers", "127.0.0.1:1")
			}
			code, stdout, stderr := runWith(&calls{}, nil, "", args...)
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("exit %d, %q, %q; want %q", code, stdout, stderr, c.want)
			}
		})
	}
}

// TestBenchPassesOn: an instance gets the settings that reach the cluster, and none that bench chooses for it; a bare
// loop gets no more than those.
func TestBenchPassesOn(t *testing.T) {
	c := bench.DefaultLife()
	cmd := benchWorkload(&process{}, bench.Description{Workload: &c, Name: "life"})
	err := cmd.ParseFlags([]string{"--tls", "--sasl-mechanism=PLAIN", "--lanes=3", "--memory=256MiB", "--group=x",
		"--data-dir=y", "--http=z:1", "--json"})
	if err != nil {
		t.Fatal(err)
	}
	for want, needs := range map[string]func(string) bool{
		"--tls=true --sasl-mechanism=PLAIN --lanes=3 --memory=256MiB": forService,
		"--tls=true --sasl-mechanism=PLAIN":                           forClient,
	} {
		if got := strings.Join(passOn(cmd.Flags(), needs), " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestScreen: a log line takes the place of a progress bar, and is not torn by it.
func TestScreen(t *testing.T) {
	var out strings.Builder
	s := &screen{w: &out}
	fmt.Fprint(s, "\r 40% |████   |")
	fmt.Fprintln(lines{s}, "level=WARN msg=x")
	fmt.Fprint(s, "\r 50% |█████  |")
	if want := "\r 40% |████   |" + clearLine + "level=WARN msg=x\n\r 50% |█████  |"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// What processes wrote is kept if something went wrong, and if there is any of it.
func TestBenchKeepsLogs(t *testing.T) {
	failed := errors.New("failed")
	for _, c := range []struct {
		name  string
		wrote bool
		err   error
		kept  bool
	}{{"well", true, nil, false}, {"wrong", true, failed, true}, {"wrong before anything ran", false, failed, false},
		{"stopped", true, context.Canceled, false}} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "logs")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if c.wrote {
				if err := os.WriteFile(filepath.Join(dir, "service.log"), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var said strings.Builder
			err := keepLogs(&said, dir, c.err)
			_, gone := os.Stat(dir)
			if !errors.Is(err, c.err) || (gone == nil) != c.kept || strings.Contains(said.String(), dir) != c.kept {
				t.Errorf("%v, %v, said %q", err, gone, said.String())
			}
		})
	}
}
