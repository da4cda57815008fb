package heap

import (
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"testing/fstest"
)

// TestPercentOf: up to the room a heap grows freely, beyond it by Percent, and by less
// beyond one and a half times the room.
func TestPercentOf(t *testing.T) {
	const mb = 1 << 20
	for _, tt := range []struct {
		live, room uint64
		want       int
	}{
		{0, 128 * mb, maxPercent}, {1 * mb, 128 * mb, maxPercent}, {12 * mb, 128 * mb, maxPercent}, {32 * mb, 128 * mb, 300}, {64 * mb, 128 * mb, 100},
		{100 * mb, 128 * mb, Percent}, {128 * mb, 128 * mb, Percent}, {150 * mb, 128 * mb, 28},
		{160 * mb, 128 * mb, LeastPercent}, {192 * mb, 128 * mb, LeastPercent}, {1000 * mb, 128 * mb, LeastPercent}, {1, 0, LeastPercent}, {0, 0, LeastPercent},
	} {
		if got := percentOf(tt.live, tt.room); got != tt.want {
			t.Errorf("%d in use, room for %d: %d, want %d", tt.live, tt.room, got, tt.want)
		}
	}
}

// TestGovernorSetsWhatCounts: not each little change, but always the way back to
// Percent.
func TestGovernorSetsWhatCounts(t *testing.T) {
	var set []int
	g := &governor{room: 1000, set: func(percent int) { set = append(set, percent) }}
	for _, live := range []uint64{0, 100, 300, 310, 650, 660, 670, 750, 900, 1200, 2000, 3000, 660, 100} {
		g.adjust(live)
	}
	if want := []int{maxPercent, 233, 53, Percent, 25, LeastPercent, 51, maxPercent}; !slices.Equal(set, want) {
		t.Errorf("%v, want %v", set, want)
	}
}

func TestLimitOf(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, tt := range map[string]struct {
		root fs.FS
		want int64
	}{
		"no cgroups":   {fstest.MapFS{}, 0},
		"none of v2":   {fstest.MapFS{membership: file("4:memory:/a\n")}, 0},
		"a container":  {fstest.MapFS{membership: file("0::/\n"), "sys/fs/cgroup/memory.max": file("268435456\n")}, 268435456},
		"no limit":     {fstest.MapFS{membership: file("0::/\n"), "sys/fs/cgroup/memory.max": file("max\n")}, 0},
		"of its own":   {fstest.MapFS{membership: file("0::/a/b\n"), "sys/fs/cgroup/a/b/memory.max": file("5\n"), "sys/fs/cgroup/a/memory.max": file("max\n")}, 5},
		"of a parent":  {fstest.MapFS{membership: file("1:x:/\n0::/a/b\n"), "sys/fs/cgroup/a/b/memory.max": file("7\n"), "sys/fs/cgroup/a/memory.max": file("6\n")}, 6},
		"out of sight": {fstest.MapFS{membership: file("0::/../x\n"), "sys/fs/cgroup/memory.max": file("8\n")}, 8},
	} {
		if got := limitOf(tt.root); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestSoftLimit(t *testing.T) {
	for _, tt := range [][3]int64{{1000, 100, 800}, {1000, 0, 900}, {1000, 900, 500}} {
		if got := softLimit(tt[0], tt[1]); got != tt[2] {
			t.Errorf("limit %d, %d outside: %d, want %d", tt[0], tt[1], got, tt[2])
		}
	}
}

const asChild = "WATERCLOCK_HEAP_CHILD"

// TestHeapGrowsBeforeItIsCollected makes garbage in a process of its own, with a quarter
// of the room in use: collections are as rare as the room allows. A heap that is larger
// is collected by LeastPercent.
func TestHeapGrowsBeforeItIsCollected(t *testing.T) {
	if os.Getenv(asChild) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return len(v) > 5 && v[:5] == "GOGC=" }), asChild+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	Tune(0)
	some := inUse(Room / 4)
	if n := slices.Min(collections(2 << 30)); n > 2<<30/(Room/2) {
		t.Errorf("%d collections while 2 GiB were allocated with %d MiB in use", n, len(some))
	}
	much := inUse(2 * Room)
	if n := slices.Max(collections(2 << 30)); n < 2<<30/Room { // with Go's own percentage there would be five
		t.Errorf("%d collections while 2 GiB were allocated with %d MiB in use", n, len(some)+len(much))
	}
	runtime.KeepAlive(some)
	runtime.KeepAlive(much)
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

// collections counts the garbage collections while so many bytes are allocated, three
// times over: on a starved machine a collection takes long, and the percentage that it
// leads to comes later still.
func collections(bytes int) []int64 {
	var counts []int64
	for range 3 {
		var before, after debug.GCStats
		debug.ReadGCStats(&before)
		for range bytes >> 16 {
			sink = make([]byte, 1<<16)
		}
		debug.ReadGCStats(&after)
		counts = append(counts, after.NumGC-before.NumGC)
	}
	return counts
}
