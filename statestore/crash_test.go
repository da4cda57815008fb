package statestore

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	childEnv   = "WATERCLOCK_STATESTORE_CHILD" // names the task of the child process
	childDir   = "WATERCLOCK_STATESTORE_DIR"
	childSeed  = "WATERCLOCK_STATESTORE_SEED"
	crashRuns  = 12
	crashParts = 3
)

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "crash":
		childCrash()
	case "open":
		childOpen()
	default:
		os.Exit(m.Run())
	}
}

func childOptions() Options {
	o := testOptions(nil)
	o.Dir = os.Getenv(childDir)
	return o
}

func childFail(err error) {
	fmt.Println("error:", err)
	os.Exit(3)
}

// childCrash changes the store until it is killed.
func childCrash() {
	seed, _ := strconv.ParseUint(os.Getenv(childSeed), 10, 64)
	o := childOptions()
	o.Memory = 512 << 10 // flushes all the time
	s, err := Open(o)
	if err != nil {
		childFail(err)
	}
	s.tables.leastIDs = 100
	fmt.Println("open")
	for i := range crashParts {
		go func() {
			childFail(churn(s.Partition(crashPartition(i)).Acquire(), crashLog(i),
				rand.New(rand.NewPCG(seed, uint64(i)))))
		}()
	}
	for {
		if err := s.Flush(); err != nil {
			childFail(err)
		}
	}
}

func crashPartition(i int) PartitionID {
	return PartitionID{Topic: [16]byte{0xff}, Partition: int32(i)}
}

func crashLog(i int) log { return log{seed: uint64(i), names: 500} }

// churn applies, replays and wipes one partition until something fails.
func churn(k *Handle, l log, rng *rand.Rand) error {
	m, err := k.Meta()
	if err != nil {
		return err
	}
	s := l.empty()
	if m.Position >= 0 {
		s = l.fold(m.Position)
		s.mark = m.Mark
	}
	if s.parked, err = readParked(k); err != nil {
		return err
	}
	for err == nil {
		target, lo := fmt.Sprint("orders/", rng.IntN(3)), rng.IntN(l.names)
		n := max(s.position, 0) + int64(rng.IntN(400))
		switch {
		case n > 8000 || rng.IntN(12) == 0:
			s, err = l.empty(), k.Wipe()
		case rng.IntN(4) == 0:
			err = s.park(k, target, lo, lo+rng.IntN(200))
		case rng.IntN(4) == 0:
			err = s.unpark(k, target, 1+rng.IntN(100), 1<<20)
		case rng.IntN(2) == 0:
			err = s.replay(k, n)
		default:
			err = s.apply(k, n)
		}
	}
	return err
}

// child starts this test binary again to do something in dir.
func child(t *testing.T, what, dir string, seed uint64) *exec.Cmd {
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+what, childDir+"="+dir, childSeed+"="+fmt.Sprint(seed))
	cmd.Stderr = os.Stderr
	return cmd
}

// TestStoreOfAKilledProcessIsAFold kills a process that applies, replays by table, parks, unparks and wipes, at random
// points. It compares the directory with the fold at the stored position: each timer is there once, parked or not.
func TestStoreOfAKilledProcessIsAFold(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	runs := crashRuns
	if testing.Short() {
		runs = 3
	}
	found, parked := map[int64]bool{}, 0
	for run := 0; run < runs || run < 10*runs && (len(found) < 4 || parked == 0); run++ { // a slow machine takes more
		cmd := child(t, "crash", dir, seed+uint64(run))
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		r := bufio.NewReader(out)
		if line, err := r.ReadString('\n'); line != "open\n" {
			t.Fatalf("run %d: child says %q, %v", run, line, err)
		}
		kill := time.AfterFunc(time.Duration(rng.IntN(300)*(1+run/runs))*time.Millisecond,
			func() { cmd.Process.Kill() })
		if line, _ := r.ReadString('\n'); line != "" {
			t.Errorf("run %d: child says %q", run, line)
		}
		cmd.Wait()
		kill.Stop()
		for p, n := range compareAfterKill(t, dir) {
			found[p] = true
			parked += n
		}
	}
	if len(found) < 4 || parked == 0 {
		t.Fatalf("positions found: %v, %d parked: the children did nothing", found, parked)
	}
}

// compareAfterKill returns how many timers are parked at the position of each partition.
func compareAfterKill(t *testing.T, dir string) map[int64]int {
	found := map[int64]int{}
	o := testOptions(nil)
	o.Dir = dir
	s, err := Open(o)
	must(t, err)
	defer s.Close()
	for i := range crashParts {
		k := s.Partition(crashPartition(i)).Acquire()
		m := getMeta(t, k)
		want := crashLog(i).empty()
		if m.Position >= 0 {
			want = crashLog(i).fold(m.Position)
			want.mark = m.Mark
		}
		want.parked, err = readParked(k)
		must(t, err)
		if err := want.compare(k); err != nil {
			t.Fatalf("partition %d at %d: %v", i, m.Position, err)
		}
		found[m.Position] += len(want.parked)
	}
	return found
}

// childOpen prints the result of opening the directory.
func childOpen() {
	_, err := Open(childOptions())
	fmt.Println(errors.Is(err, ErrInUse), err)
}

func TestDirectoryInUse(t *testing.T) {
	o := testOptions(nil)
	o.Dir = t.TempDir()
	s := mustOpen(t, o)
	_, err := Open(o)
	wantErr(t, err, ErrInUse)
	out, err := child(t, "open", o.Dir, 0).Output()
	must(t, err)
	if got := string(out); !strings.HasPrefix(got, "true ") || !strings.Contains(got, o.Dir) {
		t.Fatalf("another process is told %q", got)
	}
	must(t, s.Close())
	out, err = child(t, "open", o.Dir, 0).Output()
	must(t, err)
	if got := string(out); got != "false <nil>\n" {
		t.Fatalf("another process is told %q of a free directory", got)
	}
}

// Scans, look-ups and applies run at the same time, for the race detector. A reader must never see a part of a batch.
func TestReadersBesideWriter(t *testing.T) {
	s := memStore(t)
	k := s.Partition(partition0).Acquire()
	l := log{seed: 7, names: 50}
	model := l.empty()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				// An ID that is there twice means that half of a batch was seen.
				seen := map[string]bool{}
				timers, _, _, err := k.Scan(timer.Ref{Due: -1 << 62}, last, 10_000, 8<<20)
				if err != nil {
					t.Error(err)
				}
				for _, x := range timers {
					if seen[string(x.ID)] {
						t.Errorf("%s twice", x.ID)
					}
					seen[string(x.ID)] = true
				}
				if _, err := k.Get([]byte("timer-1")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range int64(300) {
		if i%50 == 49 {
			must(t, s.Flush())
		}
		must(t, model.apply(k, max(model.position, i*7)))
	}
	close(stop)
	wg.Wait()
	must(t, model.compare(k))
}
