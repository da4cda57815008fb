package brokers

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// table runs one of Kafka's tools and returns the rows of its answer that name the group, as words.
func table(t testing.TB, group, class string, args ...string) (rows [][]string) {
	t.Helper()
	cmd := rig.Tool(t, class, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", class, args, err, out, stderr.String())
	}
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 0 && words[0] == group {
			rows = append(rows, words)
		}
	}
	t.Logf("%s %s\n%s", class, strings.Join(args, " "), out)
	return rows
}

// Kafka's own tools, and kadm, list the group and show its members, what they have and how far they are. Nothing waits,
// so the lag is 0, although the log of each partition ends with two markers: a producer has committed one transaction
// and aborted another.
func TestKafkasToolsShowTheGroup(t *testing.T) {
	t.Parallel()
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
	group, adm := s.Group(), s.Admin
	p, other := s.StartReady(), s.Twin().Start()
	other.Ready(partitions/2, rig.Patience)
	p.Ready(partitions/2, rig.Patience)

	const n = 40
	var kept, dropped []*kgo.Record
	for i := range n {
		kept = append(kept, s.Valued(fmt.Sprint("kept-", i), "v", time.Now()))
		dropped = append(dropped, s.Valued(fmt.Sprint("dropped-", i), "v", time.Now()))
		kept[i].Partition, dropped[i].Partition = int32(i%partitions), int32(i%partitions)
	}
	producer := s.Foreign("producer")
	producer.Begin(kept...)
	producer.End(kgo.TryCommit)
	rig.Complete(t, s.Out, n)
	producer.Begin(dropped...)
	producer.End(kgo.TryAbort)

	// Markers are written behind the answer that a transaction has ended.
	var ends kadm.ListedOffsets
	await.Until(t, rig.Patience, "both markers at the end of each partition", func() bool {
		sum, err := int64(0), error(nil)
		ends, err = adm.ListEndOffsets(context.Background(), s.Requests)
		ends.Each(func(end kadm.ListedOffset) { sum += end.Offset })
		return err == nil && sum == 2*n+2*partitions
	})
	await.Until(t, rig.Patience, "kadm shows no lag", func() bool {
		lags, err := adm.Lag(context.Background(), group)
		return err == nil && len(lags[group].Lag[s.Requests]) == partitions && lags[group].Lag.Total() == 0
	})
	lags, err := adm.Lag(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lags[group].Lag.Sorted() {
		end, _ := ends.Lookup(l.Topic, l.Partition)
		if l.Member == nil || l.Commit.At != end.Offset || end.Offset == 0 {
			t.Errorf("kadm: %s/%d: member %v, committed %d, the log ends at %d", l.Topic, l.Partition, l.Member,
				l.Commit.At, end.Offset)
		}
	}

	broker := []string{"--bootstrap-server", strings.Join(s.Cluster.Seeds(), ",")}
	const groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	if rows := table(t, group, groups, append(broker, "--list")...); len(rows) != 1 {
		t.Errorf("kafka-consumer-groups --list: %v", rows)
	}
	if rows := table(t, group, "org.apache.kafka.tools.GroupsCommand", append(broker, "--list")...); len(rows) != 1 ||
		!slices.Equal(rows[0][1:], []string{"Classic", "consumer"}) {
		t.Errorf("kafka-groups --list: %v", rows)
	}
	rows := table(t, group, groups, append(broker, "--describe", "--offsets", "--group", group)...)
	at, members := map[string]int64{}, map[string]int{}
	// Columns: group, topic, partition, current offset, log end offset, lag, consumer ID, host, client ID.
	for _, r := range rows {
		if len(r) != 9 || r[1] != s.Requests || r[5] != "0" || r[3] != r[4] || !strings.HasPrefix(r[8], "waterclock-") {
			t.Errorf("kafka-consumer-groups --describe: %v", r)
			continue
		}
		at[r[2]], err = strconv.ParseInt(r[4], 10, 64)
		if err != nil {
			t.Error(err)
		}
		members[r[6]]++
	}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Topic == s.Requests && at[strconv.Itoa(int(end.Partition))] != end.Offset {
			t.Errorf("kafka-consumer-groups --describe: partition %d is at %v of %d", end.Partition, at, end.Offset)
		}
	})
	if len(members) != 2 {
		t.Errorf("kafka-consumer-groups --describe: %v have the partitions, want two members", members)
	}
	assigned := map[string]string{}
	for _, r := range table(t, group, groups,
		append(broker, "--describe", "--members", "--verbose", "--group", group)...) {
		for _, word := range r[1:] { // the group's name may contain the topic's
			if parts, ok := strings.CutPrefix(word, s.Requests+":"); ok {
				for part := range strings.SplitSeq(parts, ",") {
					assigned[part] = r[1]
				}
			}
		}
	}
	for _, r := range rows {
		if len(assigned) != partitions || len(r) == 9 && assigned[r[2]] != r[6] {
			t.Errorf("kafka-consumer-groups --describe --members --verbose: partition %s belongs to %s, want %s", r[2],
				assigned[r[2]], r[6])
		}
	}
	state := table(t, group, groups, append(broker, "--describe", "--state", "--group", group)...)
	if len(state) != 1 || !slices.Contains(state[0], "waterclock") || !slices.Contains(state[0], "Stable") ||
		state[0][len(state[0])-1] != "2" {
		t.Errorf("kafka-consumer-groups --describe --state: %v", state)
	}
	p.Settled()
}
