package statestore

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
)

func TestParseIdentity(t *testing.T) {
	good := newIdentity()
	bound := good
	bound.cluster = "MkU3OEVBNTcwNTJENDM2Qk"
	for _, want := range []identity{good, bound} {
		got, err := parseIdentity(want.String())
		if err != nil || got != want {
			t.Errorf("%+v came back as %+v, %v", want, got, err)
		}
	}
	for _, c := range []struct {
		name, text string
		want       error
	}{
		{"empty", "", ErrForeignDirectory},
		{"something else", "mysql\nformat 1\n", ErrForeignDirectory},
		{"no format", "waterclock store\nformat x\nstore a\ncluster -\n", ErrForeignDirectory},
		{"cut short", "waterclock store\nformat 1\nstore a\n", ErrForeignDirectory},
		{"newer", "waterclock store\nformat 2\nanything\n", ErrNewerFormat},
		{"a cluster with a blank", "waterclock store\nformat 1\nstore a\ncluster a b\n", ErrForeignDirectory},
	} {
		if _, err := parseIdentity(c.text); err == nil {
			t.Errorf("%s: accepted", c.name)
		} else {
			wantErr(t, err, c.want)
		}
	}
}

func TestCluster(t *testing.T) {
	o := testOptions(vfs.NewMem())
	s := mustOpen(t, o)
	if s.identity.cluster != "" {
		t.Fatalf("new directory of cluster %q", s.identity.cluster)
	}
	if err := s.BindCluster("two words"); err == nil {
		t.Fatal("a bad ID was accepted")
	}
	must(t, s.BindCluster("mine"))
	must(t, s.BindCluster("mine"))
	must(t, s.Close())
	s = mustOpen(t, o)
	if s.identity.cluster != "mine" {
		t.Fatalf("after reopening: cluster %q", s.identity.cluster)
	}
	err := s.BindCluster("theirs")
	wantErr(t, err, ErrForeignCluster)
	for _, part := range []string{"/store", "mine", "theirs"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	must(t, s.BindCluster("mine"))
}

func writeFile(t *testing.T, fs vfs.FS, name, text string) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write([]byte(text))
	must(t, err)
	must(t, f.Close())
}

func TestForeignDirectories(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, fs vfs.FS)
		want error
	}{
		{"newer store", func(t *testing.T, fs vfs.FS) {
			writeFile(t, fs, "/store/STORE", "waterclock store\nformat 2\n")
		}, ErrNewerFormat},
		{"some STORE", func(t *testing.T, fs vfs.FS) {
			writeFile(t, fs, "/store/STORE", "grocery\n")
		}, ErrForeignDirectory},
		{"a database without STORE", func(t *testing.T, fs vfs.FS) {
			must(t, fs.MkdirAll("/store/db", 0o755))
		}, ErrForeignDirectory},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			must(t, fs.MkdirAll("/store", 0o755))
			c.make(t, fs)
			_, err := Open(testOptions(fs))
			wantErr(t, err, c.want)
			_, err = Open(testOptions(fs)) // the lock was given back
			wantErr(t, err, c.want)
		})
	}
}

func TestTablesOfACrashAreCleared(t *testing.T) {
	fs := vfs.NewMem()
	must(t, fs.MkdirAll("/store/tables", 0o755))
	writeFile(t, fs, "/store/tables/000001.sst", "half a table")
	mustOpen(t, testOptions(fs))
	names, err := fs.List("/store/tables")
	must(t, err)
	if len(names) != 0 {
		t.Fatalf("left: %v", names)
	}
}

// A partition with a meta row of a later version is rejected, may be wiped, and does not keep the others from being
// flushed.
func TestNewerMetaRow(t *testing.T) {
	s := memStore(t)
	p := s.Partition(partition0)
	must(t, s.db.Set(p.prefix.key(kindMeta), []byte{metaFormat + 1, 1, 2, 3}, pebble.NoSync))
	k := p.Acquire()
	_, err := k.Meta()
	wantErr(t, err, ErrNewerFormat)
	_, err = k.Lookup([]byte("a"))
	wantErr(t, err, ErrNewerFormat)
	must(t, s.Flush())
	must(t, k.Wipe())
	if m := getMeta(t, k); m.Position != -1 {
		t.Fatalf("after the wipe: %+v", m)
	}
}

// A reader of a timer's row that is of a later version, or makes no sense, gets an error: the partition may be wiped.
func TestUnreadableTimerRow(t *testing.T) {
	for row, want := range map[string]error{"\x02\x00": ErrNewerFormat, "\x01": ErrCorrupt} {
		s := memStore(t)
		k, ts := withTimers(t, s)
		key := appendRowKey(nil, k.p.prefix, Location{ref: ts[1].Ref()})
		must(t, s.db.Set(key, []byte(row), pebble.NoSync))
		_, _, _, err := k.Scan(timer.Ref{}, last, 100, 1<<20)
		wantErr(t, err, want)
		must(t, k.Park(unhealthy, ts[2:3]))
		key = appendRowKey(nil, k.p.prefix, Location{ts[2].Ref(), 1})
		must(t, s.db.Set(key, []byte(row), pebble.NoSync))
		_, err = k.Unpark(unhealthy, 10_000, 8<<20)
		wantErr(t, err, want)
		must(t, k.Wipe())
	}
}
