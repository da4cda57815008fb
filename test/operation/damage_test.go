package operation

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/statestore"
	"github.com/waterclock/waterclock/test/rig"
)

// Bytes of the store's tables are flipped while nobody runs: the damage is found
// when it is read, said aloud, and what lay there is replayed. The process goes
// on, and every timer fires once.
func TestDamagedStoreIsReplayed(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 4, nil)
	target := c.CreateTopic(t, 2, nil, kafkatest.Topic(t)+"-out")
	out := kafkatest.Collect(t, c, target)
	cfg := rig.Config(t, c.Seeds(), requests)
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(4, time.Minute)
	const n = 4000
	rig.Send(t, c.Client(t), timers(requests, target, "id-", n, time.Now().Add(15*time.Second), 5*time.Second,
		make([]byte, 500))...)
	in.Balanced(n)
	if got := in.Metric("waterclock_accepted_total"); got != n {
		t.Errorf("accepted %v of %d", got, n)
	}
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if err := commands.StoreVerify(t.Context(), cfg.DataDir, &said); err != nil ||
		strings.Count(said.String(), "| ok") != 4 {
		t.Errorf("verify of a good store: %v\n%s", err, &said)
	}
	said.Reset()
	if err := commands.StoreDump(t.Context(), cfg.DataDir, false, &said); err != nil ||
		strings.Count(said.String(), `"row":"timer"`) != n {
		t.Errorf("dump of a good store: %v, %d timers", err, strings.Count(said.String(), `"row":"timer"`))
	}
	tables, err := filepath.Glob(filepath.Join(cfg.DataDir, "store", "db", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables: %v %v", tables, err)
	}
	for _, path := range tables {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := len(b) / 8; at < len(b)/2; at += 1024 {
			b[at] ^= 0x55
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	said.Reset()
	if err := commands.StoreVerify(t.Context(), cfg.DataDir, &said); !statestore.IsCorrupt(err) ||
		!strings.Contains(said.String(), "DAMAGED") {
		t.Errorf("verify of a damaged store: %v\n%s", err, &said)
	}
	if err := commands.StoreDump(t.Context(), cfg.DataDir, false, &said); !statestore.IsCorrupt(err) {
		t.Errorf("dump of a damaged store: %v", err)
	}
	in, log := rig.ServeLogged(t, cfg, node.Options{})
	received := out.WaitFor(n, time.Minute)
	if !out.Quiet(time.Second) {
		t.Error("emissions go on")
	}
	received = append(received[:0:0], out.Records()...)
	rig.Exactly(t, received, n)
	in.Ready(4, time.Minute)
	in.Balanced(0)
	thrown := log.Lines("throwing the table and its partitions away")
	if len(thrown) == 0 || in.Metric("waterclock_store_damaged_tables_total") == 0 {
		t.Error("no table is said to be damaged")
	}
	// If all of it is met before a partition is acquired, none has anything to be wiped.
	met := slices.ContainsFunc(thrown, func(line string) bool { return !strings.Contains(line, `partitions=""`) })
	if met && (len(log.Lines("the local store is damaged")) == 0 ||
		in.Metric("waterclock_partitions_damaged_total") == 0) {
		t.Error("no partition is said to be wiped")
	}
	t.Logf("%v damaged tables, %v partitions wiped", in.Metric("waterclock_store_damaged_tables_total"),
		in.Metric("waterclock_partitions_damaged_total"))
}
