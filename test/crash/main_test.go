// Package crash has instances die, pause, hand over and commit with an unknown outcome, on real brokers: the
// interleavings that broke earlier drafts of the engine, each by itself, processes that are killed under load, and,
// with -for, hours of faults drawn from a seed (TestChaos, TestSoak). Each test is named after what happens. All check
// as a plain read_committed consumer that nothing is lost, duplicated or early.
package crash

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// session is long enough for a member not to be dropped on a busy machine.
	session = 6 * time.Second
	// quiet is how long nothing more must come, once everything has.
	quiet = 700 * time.Millisecond
	// never is a due time that no test lives to see.
	never = 1000 * time.Hour
)

func TestMain(m *testing.M) {
	rig.PlayVictim()
	kafkatest.Main(m)
}

// settings are those of an instance with a directory of its own.
func settings(s *rig.Setup) *config.Config {
	cfg := s.Config()
	cfg.SessionTimeout = session
	return cfg
}

// A streamed timer is due within these of being sent.
const soonest, latest = 200 * time.Millisecond, 3 * time.Second

const streamRate = 500 // timers a second

// stream sends timers at a steady rate, due shortly after: stream-0, stream-1 and so on.
func stream(s *rig.Setup) *rig.Stream {
	return rig.StartStream(s, s.Cluster.Client(s.T), streamRate, func(n int) *kgo.Record {
		spread := time.Duration(n*7919) * time.Millisecond % (latest - soonest)
		return s.Valued(streamID(n), "1", time.Now().Add(soonest+spread))
	})
}

func streamID(i int) string { return fmt.Sprintf("stream-%d", i) }

// more waits until that many more emissions have come.
func more(s *rig.Setup, n int) {
	s.Helper()
	s.Out.WaitFor(len(s.Out.Records())+n, rig.Patience)
}

// awaitStream waits until each of n streamed timers was received once, and names some of those that were not.
func awaitStream(s *rig.Setup, n int) {
	s.Helper()
	missing := make(map[string]bool, n)
	for i := range n {
		missing[streamID(i)] = true
	}
	seen := 0
	_, came := await.Within(rig.Patience, func() bool {
		records := s.Out.Records()
		for _, r := range records[seen:] {
			delete(missing, r.Header("waterclock-id"))
		}
		seen = len(records)
		return len(missing) == 0
	})
	if !came {
		kafkatest.Inexact(s, "lost: %d of %d streamed timers after %s, such as %v", len(missing), n, rig.Patience,
			some(missing))
		s.FailNow()
	}
}

// some returns up to five keys.
func some(m map[string]bool) []string {
	keys := slices.Sorted(maps.Keys(m))
	return keys[:min(5, len(keys))]
}

// claims returns the owners that have claimed each partition, in order, as a plain consumer reads them.
func claims(s *rig.Setup) map[int32][]string {
	s.Helper()
	owners := make(map[int32][]string)
	for _, r := range s.Committed(s.Changelog()) {
		if string(r.Key) != string(wire.ClaimKey()) {
			continue
		}
		claim, err := wire.DecodeClaim(r.Value)
		if err != nil {
			s.Fatalf("claim at %d/%d: %v", r.Partition, r.Offset, err)
		}
		if claim.Step != "" { // see wire.ClaimRecords
			owners[r.Partition] = append(owners[r.Partition], claim.Owner)
		}
	}
	return owners
}

// moves checks that nobody claimed a partition that was its own, as one does that drops a partition and is given it
// again, and returns the number of claims.
func moves(s *rig.Setup) (n int) {
	s.Helper()
	for p, owners := range claims(s) {
		n += len(owners)
		for i, owner := range owners[1:] {
			if owners[i] == owner {
				s.Errorf("partition %d was claimed twice in a row by %s", p, owner)
			}
		}
	}
	return n
}

// owned are the partitions of the request topic that an instance holds.
func owned(s *rig.Setup, in rig.Shown) (ps []int32) {
	s.Helper()
	_, body := in.Readyz()
	var shown struct {
		Detail struct {
			Topics map[string]map[int32]json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(body), &shown); err != nil {
		s.Fatalf("readyz: %v: %s", err, body)
	}
	return slices.Collect(maps.Keys(shown.Detail.Topics[s.Requests]))
}
