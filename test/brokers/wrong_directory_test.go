package brokers

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest"
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

// Each way in which a data directory that holds timers can be another one than it was: code 1, naming the directory and
// what to do, and nothing of it is changed that waterclock does not know. Without the directory everything is there
// again.
func TestWrongDirectory(t *testing.T) {
	t.Parallel()
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
	served(s)
	good := filepath.Join(t.TempDir(), "good")
	if err := os.CopyFS(good, os.DirFS(s.Dir)); err != nil {
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
			row := *s
			row.T, row.Dir = t, t.TempDir()
			if err := os.CopyFS(row.Dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			v.spoil(t, row.Dir)
			t.Log(refused(t, row.Start(), 1, words(&row, v.want)...))
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
			row := *s
			row.T, row.Dir = t, v.dir
			t.Log(refused(t, row.Start(), 1, append(v.want, v.dir)...))
		})
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Fatal(err)
	}
	p := s.StartReady()
	s.Pending(1, p)
	t.Run("in use", func(t *testing.T) {
		refused(t, s.Start(), 1, s.Dir, "data directory is in use by another process",
			"stop that process", "--data-dir")
		if status, body := p.Readyz(); status != http.StatusOK {
			t.Errorf("the first is not ready any more: %s", body)
		}
	})
}

// notWritable is a directory in which nobody like us can make anything: root may write wherever there is a file system
// that takes it.
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
