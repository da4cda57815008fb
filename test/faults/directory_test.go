package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// replaceLine changes a line of the STORE file.
func replaceLine(from, to string) func(testing.TB, string) {
	return func(t testing.TB, dir string) {
		path := filepath.Join(dir, "store", "STORE")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(b), "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, from) {
				lines[i] = to
			}
		}
		write(t, path, strings.Join(lines, "\n"))
	}
}

// overwrite replaces what the one file has whose name matches.
func overwrite(glob, text string) func(testing.TB, string) {
	return func(t testing.TB, dir string) {
		names, err := filepath.Glob(filepath.Join(dir, "store", glob))
		if err != nil || len(names) == 0 {
			t.Fatalf("no %s in the directory: %v", glob, err)
		}
		for _, name := range names {
			write(t, name, text)
		}
	}
}

// away removes every file and directory that matches.
func away(glob string) func(testing.TB, string) {
	return func(t testing.TB, dir string) {
		names, err := filepath.Glob(filepath.Join(dir, "store", glob))
		if err != nil || len(names) == 0 {
			t.Fatalf("no %s in the directory: %v", glob, err)
		}
		for _, name := range names {
			if err := os.RemoveAll(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Each way in which a data directory that holds timers can be another one than it
// was: code 1, naming the directory and what to do, and nothing of it is changed
// that waterclock does not know. Without the directory everything is there again.
func TestWrongDirectory(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	s := newSetup(t, c)
	s.served(t)
	good := filepath.Join(t.TempDir(), "good")
	if err := os.CopyFS(good, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct {
		name  string
		spoil func(testing.TB, string)
		want  []string
	}{
		{"another cluster", replaceLine("cluster ", "cluster another"), []string{"store in DIRECTORY/store belongs " +
			"to cluster another, not to", "name another directory, or delete this one"}},
		{"newer format", replaceLine("format ", "format 2"), []string{"DIRECTORY/store",
			"format 2, this version knows 1", "written by a newer version of waterclock",
			"run the version that wrote it, or delete the directory"}},
		{"newer format, more lines", replaceLine("format ", "format 3\nsomething new"),
			[]string{"DIRECTORY/store", "format 3, this version knows 1", "run the version that wrote it"}},
		{"older format than there was", replaceLine("format ", "format 0"),
			[]string{"DIRECTORY/store", `format "0"`, "not a waterclock store", "--data-dir"}},
		{"unknown format", replaceLine("format ", "format x"),
			[]string{"DIRECTORY/store", `format "x"`, "not a waterclock store", "--data-dir"}},
		{"identity empty", overwrite("STORE", ""), []string{"DIRECTORY/store", "not a waterclock store", "--data-dir"}},
		{"identity of something else", overwrite("STORE", "another program\n"),
			[]string{"DIRECTORY/store", `no "waterclock store" in the first line`, "--data-dir"}},
		{"identity missing", away("STORE"), []string{"DIRECTORY/store", "db without STORE", "not a waterclock store",
			"--data-dir"}},
		{"manifest damaged", overwrite("db/MANIFEST-*", "rubbish"), []string{"DIRECTORY/store",
			"if the directory is damaged, delete it"}},
		{"manifest missing", away("db/MANIFEST-*"),
			[]string{"DIRECTORY/store", "if the directory is damaged, delete it"}},
		{"tables missing", away("db/*.sst"), []string{"DIRECTORY/store", "if the directory is damaged, delete it"}},
		{"database is a file", func(t testing.TB, dir string) {
			away("db")(t, dir)
			write(t, filepath.Join(dir, "store", "db"), "x")
		}, []string{"DIRECTORY/store", "not a directory"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			row := &setup{c: c, requests: s.requests, dir: filepath.Join(t.TempDir(), "data")}
			if err := os.CopyFS(row.dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			v.spoil(t, row.dir)
			t.Log(refused(t, rig.Start(t, row.arguments()...), 1, row.words(v.want)...))
		})
	}
	for _, v := range []struct {
		name, dir string
		want      []string
	}{
		{"a file", write(t, filepath.Join(t.TempDir(), "file"), ""), []string{"not a directory", "--data-dir"}},
		{"below a file", write(t, filepath.Join(t.TempDir(), "file"), "") + "/data",
			[]string{"not a directory", "--data-dir"}},
		{"not writable", notWritable(t), []string{"--data-dir"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			row := &setup{c: c, requests: s.requests, dir: v.dir}
			t.Log(refused(t, rig.Start(t, row.arguments()...), 1, append(v.want, v.dir)...))
		})
	}
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	p := rig.Start(t, s.arguments()...)
	p.Ready(partitions, readyLimit)
	await.Until(t, readyLimit, "the timer is pending again",
		func() bool { return p.Metric("waterclock_pending_timers") == 1 })
	t.Run("in use", func(t *testing.T) {
		refused(t, rig.Start(t, s.arguments()...), 1, s.dir, "data directory is in use by another process",
			"stop that process", "--data-dir")
		if status, body := p.Readyz(); status != http.StatusOK {
			t.Errorf("the first is not ready any more: %s", body)
		}
	})
}

// notWritable is a directory in which nobody like us can make anything: root may
// write wherever there is a file system that takes it.
func notWritable(t testing.TB) string {
	t.Helper()
	if os.Getuid() == 0 {
		return "/proc/waterclock"
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A data directory is copied, and its first owner goes on: fires, cancels, replaces
// and takes in more. An instance with the copy replays what the copy lacks, alone
// and beside the first, which then has an old directory too: nothing is lost,
// duplicated or comes back.
func TestCopiedDirectory(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Shared(t)
	s := newSetup(t, c)
	target := c.CreateTopic(t, 2, nil, s.requests+"-out")
	out := kafkatest.Collect(t, c, target)
	cl := c.Client(t)
	const each = 25
	// many sends one request for each of some timers.
	many := func(kind, value string, due time.Time) {
		for i := range each {
			r := timer(s.requests, target, fmt.Sprint(kind, "-", i), value, due)
			if value == "" { // cancels
				r.Value, r.Headers = nil, nil
			}
			cl.Produce(t.Context(), r, nil)
		}
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	late := time.Now().Add(25 * time.Second)
	first := rig.Start(t, s.arguments()...)
	first.Ready(partitions, readyLimit)
	many("kept", "v", late)
	many("cancelled", "v", late)
	many("replaced", "old", late)
	many("fired", "v", time.Now().Add(4*time.Second))
	pending(t, 4*each, first)
	stopped(t, first)
	twin := &setup{c: c, requests: s.requests, dir: filepath.Join(t.TempDir(), "copy")}
	if err := os.CopyFS(twin.dir, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	first = rig.Start(t, s.arguments()...)
	first.Ready(partitions, readyLimit)
	many("cancelled", "", late)
	many("replaced", "new", late)
	many("added", "v", late)
	out.WaitFor(each, readyLimit)
	pending(t, 3*each, first)
	stopped(t, first)

	second := rig.Start(t, twin.arguments()...)
	second.Ready(partitions, readyLimit)
	pending(t, 3*each, second)
	many("later", "v", late)
	pending(t, 4*each, second)
	first = rig.Start(t, s.arguments()...) // its directory is the old one now
	await.Until(t, readyLimit, "both own partitions", func() bool {
		status, _ := first.Healthz()
		return status == http.StatusOK && first.Metric("waterclock_partitions", "state", "live") == partitions/2 &&
			second.Metric("waterclock_partitions", "state", "live") == partitions/2
	})
	pending(t, 4*each, first, second)
	out.WaitFor(5*each, readyLimit)
	if !out.Quiet(2 * time.Second) {
		t.Error("emissions go on")
	}
	byID := rig.Exactly(t, out.Records(), 5*each)
	for id, rs := range byID {
		switch kind, _, _ := strings.Cut(id, "-"); {
		case kind == "cancelled":
			t.Errorf("%s fired", id)
		case kind == "replaced" && string(rs[0].Value) != "new":
			t.Errorf("%s fired with %q", id, rs[0].Value)
		}
	}
	for _, p := range []*rig.Process{first, second} {
		if p.Metric("waterclock_ledger") != 0 {
			t.Errorf("the ledger is %v", p.Metric("waterclock_ledger"))
		}
	}
}
