package statestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/timer"
)

// files returns the names and bytes of all files below dir.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	}))
	return all
}

func TestReadOnlyChangesNothing(t *testing.T) {
	o := testOptions(nil)
	o.Dir = t.TempDir()
	s := mustOpen(t, o)
	k, ts := withTimers(t, s)
	must(t, k.Park(unhealthy, ts[:2]))
	_, err := OpenReadOnly(o)
	wantErr(t, err, ErrInUse)
	must(t, s.Close())
	before := files(t, o.Dir)

	s, err = OpenReadOnly(o)
	must(t, err)
	_, err = Open(o)
	wantErr(t, err, ErrInUse)
	k = s.Partition(partition0).Acquire()
	wantIDs(t, k, "c d e")
	x, err := k.Get([]byte("a"))
	must(t, err)
	if x.Due != 10 {
		t.Fatalf("%+v", x)
	}
	for name, call := range map[string]func() error{
		"meta":    func() error { _, err := k.Meta(); return err },
		"apply":   func() error { return k.Apply(batchAt(9, remove(ts[0]))) },
		"wipe":    k.Wipe,
		"live":    func() error { return k.Live(testNow, held) },
		"replay":  func() error { _, err := k.Replay(changelog, testNow); return err },
		"park":    func() error { return k.Park(unhealthy, ts) },
		"unpark":  func() error { _, err := k.Unpark(unhealthy, 10_000, 8<<20); return err },
		"flush":   s.Flush,
		"drop":    func() error { _, err := s.Drop(PartitionID{Partition: 9}, syncedBefore(testNow)); return err },
		"cluster": func() error { return s.BindCluster("c1") },
	} {
		if err := call(); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
	}
	verified := ""
	must(t, s.VerifyAll(t.Context(), func(id PartitionID, m Meta, err error) {
		verified += fmt.Sprint(id, " ", m.Pending, " ", m.Parked, " ", err)
	}))
	if verified != partition0.String()+" 5 2 <nil>" {
		t.Fatalf("verified: %s", verified)
	}
	must(t, s.Close())
	must(t, s.Close())
	wantErr(t, s.VerifyAll(t.Context(), nil), ErrClosed)
	if after := files(t, o.Dir); !reflect.DeepEqual(after, before) {
		t.Fatal("the directory has changed")
	}
	mustOpen(t, o)
}

func TestReadOnlyRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, dir string)
		want error
	}{
		{"no directory", func(t *testing.T, dir string) { must(t, os.Remove(dir)) }, ErrForeignDirectory},
		{"empty directory", func(*testing.T, string) {}, ErrForeignDirectory},
		{"newer store", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, identityFile), []byte("waterclock store\nformat 99\n"), 0o644))
		}, ErrNewerFormat},
		{"no database yet", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, identityFile), []byte(newIdentity().String()), 0o644))
		}, fs.ErrNotExist},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions(nil)
			o.Dir = t.TempDir()
			c.make(t, o.Dir)
			_, err := OpenReadOnly(o)
			wantErr(t, err, c.want)
			if !strings.Contains(err.Error(), o.Dir) {
				t.Fatalf("%v does not name the directory", err)
			}
		})
	}
}

// Bytes of a table are flipped, one place after another. Either the fault is found, or the store reads as before. An
// error names the partition that was hit, and the other partition is verified all the same.
func TestVerifyAllNamesTheDamagedPartition(t *testing.T) {
	runs.NotRaced(t)
	o := testOptions(vfs.NewMem())
	s := mustOpen(t, o)
	parts := []PartitionID{partition0, partition1}
	for i, id := range parts {
		// One table each.
		var changes []Change
		for j := range int64(2000) {
			x := newTimer(fmt.Sprint("timer-", j), j, j)
			changes = append(changes, put(x, timer.Absent))
		}
		must(t, s.Partition(id).Acquire().Apply(batchAt(int64(i), changes...)))
		must(t, s.Flush())
	}
	must(t, s.Close())
	mem := o.FS
	names, err := mem.List("/store/db")
	must(t, err)
	slices.Sort(names)
	tables := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		victim := parts[tables]
		tables++
		path := "/store/db/" + name
		good := readFile(t, mem, path)
		found := 0
		for at := 10; at < len(good)-100; at += len(good) / 12 {
			bad := []byte(good)
			bad[at] ^= 0x40
			writeFile(t, mem, path, string(bad))
			s, err := OpenReadOnly(o)
			if err != nil {
				wantErr(t, err, ErrCorrupt)
				continue
			}
			said := map[PartitionID]error{}
			err = s.VerifyAll(t.Context(), func(id PartitionID, _ Meta, err error) { said[id] = err })
			must(t, s.Close())
			if err == nil {
				continue // a filter, or padding
			}
			found++
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), victim.String()) {
				t.Fatalf("%s, byte %d: %v", name, at, err)
			}
			for _, id := range parts {
				if damaged := said[id] != nil; damaged != (id == victim) {
					t.Fatalf("%s, byte %d: of %v it says %v", name, at, id, said[id])
				}
			}
		}
		if found < 6 {
			t.Fatalf("%s: found %d of 12 flipped bytes", name, found)
		}
		writeFile(t, mem, path, good)
	}
	if tables != len(parts) {
		t.Fatalf("%d tables", tables)
	}
	s, err = OpenReadOnly(o)
	must(t, err)
	must(t, s.VerifyAll(t.Context(), nil))
	must(t, s.Close())
}

func readFile(t *testing.T, fs vfs.FS, path string) string {
	t.Helper()
	f, err := fs.Open(path)
	must(t, err)
	defer f.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(f)
	must(t, err)
	return b.String()
}

func TestDump(t *testing.T) {
	s := memStore(t)
	k, ts := withTimers(t, s)
	must(t, k.Live(testNow, held))
	b := batchAt(7)
	b.Checkpoint = []byte("checkpoint")
	must(t, k.Apply(b))
	must(t, k.Park(unhealthy, ts[:1]))
	must(t, k.Apply(batchAt(8, remove(ts[1]), remove(ts[2]), remove(ts[3]))))
	odd := newTimer("\xff\x00", -5, 9)
	odd.Target.Partition, odd.Value, odd.Headers = 3, nil, nil
	odd.Recurrence = &timer.Recurrence{Cron: "@daily", Zone: "Africa/Lagos", Until: 7, Count: 3, Jitter: 20, Delay: 5,
		CatchUp: timer.CatchUpNone}
	odd.TooLate = 1001
	k1 := s.Partition(partition1).Acquire()
	must(t, k1.Live(testNow, held))
	must(t, k1.Apply(batchAt(9, put(odd, timer.Absent))))

	var out bytes.Buffer
	must(t, s.Dump(t.Context(), &out, false))
	p0, p1 := partition0.String(), partition1.String()
	clog := fmt.Sprintf("%x", changelog)
	want := `
{"partition":"P0","row":"checkpoint","bytes":10}
{"partition":"P0","row":"timer","id":"e","due":50,"offset":4,"occurrence":1,"topic":"orders","headers":1,"value_bytes":10}
{"partition":"P0","row":"id","id":"a","due":10,"offset":0,"target":1}
{"partition":"P0","row":"id","id":"e","due":50,"offset":4}
{"partition":"P0","row":"meta","parked":1,"format":4,"position":8,"changelog":"CLOG","pending":2,"in_sync":1788264000000,"low_due":10,"low_offset":0}
{"partition":"P0","row":"parked","id":"a","due":10,"offset":0,"target":1,"occurrence":1,"topic":"orders","headers":1,"value_bytes":10}
{"partition":"P0","row":"target","target":1,"name":"orders/3","parked":1,"low_due":10,"low_offset":0}
{"partition":"P1","row":"timer","id_base64":"/wA=","due":-5,"offset":9,"occurrence":1,"recurrence":{"scheduled":-10,"cron":"@daily","zone":"Africa/Lagos","until":7,"count":3,"jitter_ms":20,"catch_up":"none"},"max_late_ms":1000,"topic":"orders","to_partition":3,"headers":0}
{"partition":"P1","row":"id","id_base64":"/wA=","due":-5,"offset":9}
{"partition":"P1","row":"meta","parked":0,"format":4,"position":9,"changelog":"CLOG","pending":1,"in_sync":1788264000000,"low_due":-5,"low_offset":9}
`
	got := strings.NewReplacer(p0, "P0", p1, "P1", clog, "CLOG").Replace(out.String())
	lines := func(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
	gotLines, wantLines := lines(got), lines(want)
	if len(gotLines) != len(wantLines) {
		t.Fatalf("dump:\n%s\nwant:\n%s", got, want)
	}
	for i := range gotLines {
		if gotLines[i] != wantLines[i] {
			t.Errorf("line %d:\n%s\nwant:\n%s", i, gotLines[i], wantLines[i])
		}
	}
	for _, secret := range []string{"value of", "dmFsdWUg", "trace"} {
		if strings.Contains(got, secret) {
			t.Errorf("payload %q in a dump of metadata", secret)
		}
	}

	out.Reset()
	must(t, s.Dump(t.Context(), &out, true))
	var rows []dumpRow
	for _, line := range lines(out.String()) {
		var r dumpRow
		must(t, json.Unmarshal([]byte(line), &r))
		rows = append(rows, r)
	}
	e := rows[1]
	if string(rows[0].Checkpoint) != "checkpoint" || string(e.EmitValue) != "value of e" || string(e.EmitKey) != "e" ||
		!reflect.DeepEqual(e.EmitHeaders, []dumpHeader{{"trace", []byte{1}}}) {
		t.Fatalf("payloads: %+v, %+v", rows[0], e)
	}
}

// A row that makes no sense becomes a line with an error, and all other lines are there.
func TestDumpOfFaults(t *testing.T) {
	s := memStore(t)
	k, ts := withTimers(t, s)
	p := k.p.prefix
	must(t, s.db.Set(appendDueKey(nil, p, ts[2].Ref()), []byte{1}, pebble.NoSync))
	must(t, s.db.Set(p.key('x'), nil, pebble.NoSync))
	must(t, s.Partition(partition1).Acquire().Apply(batchAt(9, put(ts[0], timer.Absent))))
	var out bytes.Buffer
	err := s.Dump(t.Context(), &out, false)
	wantErr(t, err, ErrCorrupt)
	if n := strings.Count(out.String(), `"error":`); n != 2 || strings.Count(out.String(), "\n") != 12+3 {
		t.Fatalf("%d errors in\n%s", n, out.String())
	}
	for _, key := range []string{fmt.Sprintf("%x", appendDueKey(nil, p, ts[2].Ref())), fmt.Sprintf("%x", p.key('x'))} {
		if !strings.Contains(err.Error(), key) || !strings.Contains(out.String(), `"row_key":"`+key) {
			t.Errorf("key %s is not named", key)
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, s.Dump(canceled, &out, false), context.Canceled)
	full := errors.New("disk full")
	wantErr(t, s.Dump(t.Context(), failingWriter{full}, false), full)
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }
