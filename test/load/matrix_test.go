package load

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

var (
	seedFlag = flag.Uint64("seed", 0, "what TestMemoryIsKept draws its cells from; 0: of the clock")
	cellFlag = flag.String("cell", "",
		"cells of TestMemoryIsKept: part of a name, such as sky/ or /256x3/; all: the covering set")
	volumeFlag = flag.Int("volume", 1, "how many times as much the cells of TestMemoryIsKept write")
)

const (
	// drawn is how many cells run unless -cell says otherwise.
	drawn = 2
	// manyPartitions are slow on three brokers, of which each has a copy of each partition of each topic.
	manyPartitions = 256
)

// cell is one place in the matrix of what a process may meet.
type cell struct {
	shape      *shape
	partitions int32
	brokers    int
	phase      phase
	callers    bool // callers of the API read as much as they get
}

// isSlow reports whether the cell takes more than some 20 s.
func (c cell) isSlow() bool {
	return c.partitions == manyPartitions && c.brokers == 3 ||
		c.callers && (c.partitions >= 64 || c.shape.name == "records")
}

// String is the cell's name.
func (c cell) String() string {
	name := fmt.Sprintf("%s/%dx%d/%s", c.shape.name, c.partitions, c.brokers, c.phase.name)
	if c.callers {
		name += "/callers"
	}
	return name
}

// cells is a covering set of the matrix: any two values of two dimensions meet in a cell (TestCellsCoverAllPairs). Each
// shape comes once with each number of partitions and once with each phase.
func cells() (all []cell) {
	for s := range shapes {
		for i, partitions := range []int32{1, 8, 64, manyPartitions} {
			c := cell{shape: &shapes[s], partitions: partitions, brokers: 1, phase: phases[(i+s)%len(phases)],
				callers: (i/2+s)%2 == 1}
			if (i+s/4)%2 == 1 && (partitions < manyPartitions || s%7 == 0) { // few of them, because they take minutes
				c.brokers = 3
			}
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all,
		func(a, b cell) int { return cmp.Or(a.brokers-b.brokers, int(a.partitions-b.partitions)) })
	return all
}

// TestCellsCoverAllPairs: each value of a dimension meets each value of every other dimension in some cell.
func TestCellsCoverAllPairs(t *testing.T) {
	var dimensions [5]map[any]bool
	pairs := make(map[string]bool)
	for _, c := range cells() {
		at := [5]any{c.shape.name, c.partitions, c.brokers, c.phase.name, c.callers}
		for i := range at {
			if dimensions[i] == nil {
				dimensions[i] = make(map[any]bool)
			}
			dimensions[i][at[i]] = true
			for j := range i {
				pairs[fmt.Sprint(i, at[i], " ", j, at[j])] = true
			}
		}
	}
	want := 0
	for i := range dimensions {
		for j := range i {
			want += len(dimensions[i]) * len(dimensions[j])
		}
	}
	if len(pairs) != want {
		t.Errorf("%d pairs meet in the cells, want %d", len(pairs), want)
	}
}

// TestMemoryIsKept has a process with the least memory meet all shapes of input, on few and many partitions, from one
// and three brokers, as a backlog, after the loss of its directory, as a burst, and while another instance joins and
// leaves. Its peak stays within a tenth of the memory, and no request is lost.
//
// At full size all cells of the matrix run. Otherwise some of those that do not take long are drawn.
func TestMemoryIsKept(t *testing.T) {
	for _, c := range chosen(t) {
		t.Run(c.String(), c.times(*volumeFlag).run)
	}
}

// chosen returns the cells of this run.
func chosen(t *testing.T) (some []cell) {
	all := cells()
	switch {
	case *cellFlag == "all" || *cellFlag == "" && runs.Full():
		return all
	case *cellFlag != "":
		some = slices.DeleteFunc(all, func(c cell) bool { return !strings.Contains(c.String(), *cellFlag) })
		if len(some) == 0 {
			t.Fatalf("no cell has %q in its name", *cellFlag)
		}
		return some
	}
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	all = slices.DeleteFunc(all, cell.isSlow)
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(all))[:drawn] {
		some = append(some, all[i])
	}
	t.Logf("-seed %d: %v", seed, some)
	return some
}

// times is a cell with n times as many records. What comes in batches that are made here is as much as it must be.
func (c cell) times(n int) cell {
	if c.shape.batch == nil {
		s := *c.shape
		s.units, s.sound, s.bad = n*s.units, n*s.sound, n*s.bad
		c.shape = &s
	}
	return c
}

// TestCellsThatHaveFailed runs cells of the matrix that failed once, always: a header takes two bytes in a log and
// forty here; a process that is killed for its memory behind a backlog is killed for ever (OPERATIONS.md says to give a
// container a tenth more than --memory), and on many partitions each has something to fetch.
func TestCellsThatHaveFailed(t *testing.T) {
	for _, c := range []cell{
		{shapeOf("headers"), 1, 1, phaseOf("burst"), false},
		cell{shapeOf("tiny-snappy"), 64, 1, phaseOf("backlog"), false}.times(3),
		{shapeOf("tiny-plain"), 64, 1, phaseOf("backlog"), false},
	} {
		t.Run(c.String(), c.run)
	}
}

// TestMemoryInAFault: all that was written fires, once, and the memory is kept, if the owner is killed in an overload,
// or the broker stands still.
func TestMemoryInAFault(t *testing.T) {
	runs.NeedSlow(t)
	t.Run("killed", cell{shapeOf("tiny-snappy"), partitions, 1, phase{"killed", killed}, false}.times(3).run)
	t.Run("paused", func(t *testing.T) {
		runs.NeedFull(t)
		cell{shapeOf("tiny-snappy"), partitions, 1, phase{"paused", paused}, false}.runOn(t, kafkatest.Start(t, 1))
	})
}

// run runs the cell on the brokers that tests share.
func (c cell) run(t *testing.T) {
	brokers := kafkatest.Shared
	if c.brokers == 3 {
		brokers = kafkatest.Three
	}
	c.runOn(t, brokers(t))
}

func (c cell) runOn(t *testing.T, brokers *kafkatest.Cluster) {
	started := time.Now()
	x := newTrial(t, brokers, c)
	c.phase.run(x)
	x.end()
	if !t.Failed() {
		t.Logf("cell %s: peak %.1f MiB, %d timers, %d dead letters, %s", c, float64(x.peak)/mib, x.sound, x.bad,
			time.Since(started).Round(time.Second))
	}
}
