package memory

import (
	"io/fs"
	"math"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const gib = 1 << 30

// sizes from the least to four times what is ever chosen.
func sizes() (list []int64) {
	for size := int64(Minimum); size <= 4*most; size += 32 * mib {
		list = append(list, size)
	}
	return list
}

// TestDivide: what can be live at once is at most two thirds of what the runtime may use, so
// that it never collects without an end; the parts outside of it fit beside it; and no part
// shrinks when the whole grows.
func TestDivide(t *testing.T) {
	var before Shares
	for _, size := range sizes() {
		s := Divide(size)
		outside := int64(process)
		if storeOutside {
			outside += s.Store
		}
		if s.Total != size || s.Heap+outside > size {
			t.Errorf("%d: the heap's %d and %d outside of it are more", size, s.Heap, outside)
		}
		live := s.Wheel + s.Dirty + s.Requests + s.Firings + s.Fetch
		if !storeOutside {
			live += s.Store
		}
		if live > s.Heap*3/4 {
			t.Errorf("%d: %d of the heap's %d can be live", size, live, s.Heap)
		}
		// Calls and questions hold memory only while somebody asks. With them the limit is reached at
		// worst, and not passed.
		if live += s.Calls + s.Questions; live > s.Heap {
			t.Errorf("%d: %d of the heap's %d can be live with all calls", size, live, s.Heap)
		}
		if s.Fetch > fetchMost {
			t.Errorf("%d: fetches bring %d", size, s.Fetch)
		}
		// Replays run beside what is live of other partitions, and calls beside either.
		if replays := int64(s.Replays) * s.Replay; replays > size/8 || s.Replays < replaysLeast ||
			s.Replays > replaysMost {
			t.Errorf("%d: %d replays of %d", size, s.Replays, s.Replay)
		}
		now, then := reflect.ValueOf(s), reflect.ValueOf(before)
		for i := range now.NumField() {
			if now.Field(i).Int() < then.Field(i).Int() || now.Field(i).Int() <= 0 {
				t.Errorf("%d: %s falls from %d to %d", size, now.Type().Field(i).Name, then.Field(i).Int(),
					now.Field(i).Int())
			}
		}
		before = s
	}
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func TestChoose(t *testing.T) {
	for name, tt := range map[string]struct {
		root fs.FS
		want int64
		why  string
	}{
		"nothing is known": {fstest.MapFS{}, unknown, "does not tell"},
		"a machine": {fstest.MapFS{"proc/meminfo": file("MemTotal:        8388608 kB\nMemFree: 1 kB\n")},
			2 * gib, "a quarter of the machine's memory, 8192MiB"},
		"a large machine": {fstest.MapFS{"proc/meminfo": file("MemTotal:       67108864 kB\n")}, 4 * gib,
			"the machine's memory is 65536MiB"},
		"a small machine": {fstest.MapFS{"proc/meminfo": file("MemTotal:         524288 kB\n")}, Minimum,
			"the machine's memory is 512MiB"},
		"a container": {fstest.MapFS{"proc/meminfo": file("MemTotal:       67108864 kB\n"),
			membership: file("0::/\n"), "sys/fs/cgroup/memory.max": file("2147483648\n")}, 512 * mib,
			"a quarter of the cgroup's limit, 2048MiB"},
		"a limit above it all": {fstest.MapFS{"proc/meminfo": file("MemTotal:        8388608 kB\n"), membership: file(
			"0::/\n"), "sys/fs/cgroup/memory.max": file("68719476736\n")}, 2 * gib, "the machine's memory"},
		"what cannot be read": {fstest.MapFS{"proc/meminfo": file("MemTotal:  many kB\n")}, unknown,
			"does not tell"},
		"a machine that is mute": {fstest.MapFS{"proc/meminfo": file("MemFree: 1 kB\n")}, unknown, "does not tell"},
	} {
		if got, why := Choose(tt.root); got != tt.want || !strings.Contains(why, tt.why) {
			t.Errorf("%s: %d, %q; want %d, %q", name, got, why, tt.want, tt.why)
		}
	}
	if size, why := Choose(os.DirFS("/")); size < Minimum || size > most || why == "" {
		t.Errorf("here: %d, %q", size, why)
	}
}

func TestLimitOf(t *testing.T) {
	for name, tt := range map[string]struct {
		root fs.FS
		want int64
	}{
		"no cgroups": {fstest.MapFS{}, 0},
		"none of v2": {fstest.MapFS{membership: file("4:memory:/a\n")}, 0},
		"a container": {fstest.MapFS{membership: file("0::/\n"), "sys/fs/cgroup/memory.max": file("268435456\n")},
			268435456},
		"no limit": {fstest.MapFS{membership: file("0::/\n"), "sys/fs/cgroup/memory.max": file("max\n")}, 0},
		"of its own": {fstest.MapFS{membership: file("0::/a/b\n"), "sys/fs/cgroup/a/b/memory.max": file("5\n"),
			"sys/fs/cgroup/a/memory.max": file("max\n")}, 5},
		"of a parent": {fstest.MapFS{membership: file("1:x:/\n0::/a/b\n"), "sys/fs/cgroup/a/b/memory.max": file("7\n"),
			"sys/fs/cgroup/a/memory.max": file("6\n")}, 6},
		"out of sight": {fstest.MapFS{membership: file("0::/../x\n"), "sys/fs/cgroup/memory.max": file("8\n")}, 8},
	} {
		if got := limitOf(tt.root); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

const asChild = "WATERCLOCK_MEMORY_CHILD"

// TestLimit makes garbage in a process of its own: collections are rare while there is room, and
// at the limit the heap grows no more. GOMEMLIMIT and GOGC win.
func TestLimit(t *testing.T) {
	if os.Getenv(asChild) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		environ := slices.DeleteFunc(os.Environ(), func(v string) bool {
			return strings.HasPrefix(v, "GOGC=") || strings.HasPrefix(v, "GOMEMLIMIT=")
		})
		for _, own := range [][]string{{}, {"GOMEMLIMIT=5GiB", "GOGC=70"}} {
			cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
			cmd.Env = append(append(slices.Clone(environ), asChild+"=1"), own...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", own, err, out)
			}
		}
		return
	}
	s := Divide(Minimum)
	s.Limit()
	if os.Getenv("GOGC") != "" {
		if limit, p := debug.SetMemoryLimit(-1), debug.SetGCPercent(100); limit != 5<<30 || p != 70 {
			t.Errorf("limit %d and percentage %d, the user's are others", limit, p)
		}
		return
	}
	few := inUse(16 * mib)
	if n := collections(gib); n > gib/(2*int64(len(few))*mib) {
		t.Errorf("%d collections while 1 GiB was allocated with %d MiB in use", n, len(few))
	}
	many := inUse(96 * mib)
	// Where other processes have the cores, the collector comes late and the heap passes the limit
	// for a moment.
	got := int64(math.MaxInt64)
	for range 10 {
		collections(gib)
		if got = min(got, mapped()); got <= s.Heap+s.Heap/10 {
			break
		}
	}
	if got > s.Heap+s.Heap/10 {
		t.Errorf("%d MiB are mapped with a limit of %d, %d in use", got/mib, s.Heap/mib, len(few)+len(many))
	}
	runtime.KeepAlive(few)
	runtime.KeepAlive(many)
}

// inUse is so much, in blocks of 1 MiB, that a collection has seen.
func inUse(size int) [][]byte {
	blocks := make([][]byte, size>>20)
	for i := range blocks {
		blocks[i] = make([]byte, 1<<20)
	}
	runtime.GC()
	return blocks
}

var sink []byte

// collections counts the garbage collections while so many bytes are allocated.
func collections(bytes int) int64 {
	var before, after debug.GCStats
	debug.ReadGCStats(&before)
	for range bytes >> 16 {
		sink = make([]byte, 1<<16)
	}
	debug.ReadGCStats(&after)
	return after.NumGC - before.NumGC
}

// mapped is how much memory the runtime has of the machine.
func mapped() int64 {
	var is runtime.MemStats
	runtime.ReadMemStats(&is)
	return int64(is.Sys - is.HeapReleased)
}
