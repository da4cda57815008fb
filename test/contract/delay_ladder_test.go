package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/kit/child"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	document = "../../docs/DELAY.md"
	// documentAddr is the broker that the document speaks of. It stands for the broker of
	// the test: that is all that is changed in a block.
	documentAddr = "127.0.0.1:9092"
)

// block is the one block of the document with this mark.
func block(t *testing.T, mark, broker string) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- "+regexp.QuoteMeta(mark)+" -->\n```[a-z]+\n(.*?)\n```").FindAllSubmatch(
		text, -1)
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks %q, want one", document, len(found), mark)
	}
	return strings.ReplaceAll(string(found[0][1]), documentAddr, broker)
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The ladder of docs/DELAY.md, as it stands there: what the worker cannot handle comes back after 1, 5 and 10 s, and
// then is left to people.
func TestRetryLadder(t *testing.T) {
	runs.NeedSlow(t) // a broker, and a JVM that compiles the worker, for 16 s of waiting
	t.Parallel()
	c := kafkatest.Start(t, 1) // the topics have the names of the document
	broker := c.Seeds()[0]
	ladder := []string{"orders.retry.1s", "orders.retry.5s", "orders.retry.10s"}
	delays := []time.Duration{time.Second, 5 * time.Second, 10 * time.Second}
	for _, topic := range append([]string{"orders", "orders.failed"}, ladder...) {
		c.CreateTopic(t, 4, map[string]*string{"message.timestamp.type": new("LogAppendTime")}, topic)
	}
	in := rig.Start(t, "serve", "--config", writeFile(t, "waterclock.yaml", block(t, "run: serve", broker)),
		"--data-dir", t.TempDir())
	in.Ready(len(ladder)*4, patience)

	out := kafkatest.Collect(t, c, append([]string{"orders", "orders.failed"}, ladder...)...)
	cmd := rig.Java(t, writeFile(t, "Worker.java", block(t, "run: java", broker)))
	said := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = said, said
	worker, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			t.Logf("the worker wrote:\n%s", said)
		}
	}()
	defer func() { // before said is read
		_ = worker.Signal(child.Kill)
		_ = worker.Wait()
	}()
	const each = 10
	var recs []*kgo.Record
	for i := range each {
		for _, kind := range []string{"fine", "broken"} {
			recs = append(recs, rig.Request("orders", fmt.Sprint(kind, "-", i), fmt.Sprint(kind, " order ", i), "trace",
				fmt.Sprint(i)))
		}
	}
	rig.Send(t, c.Client(t), recs...)
	// Each that is fine once; each that is broken on orders four times, on each rung, and at the end.
	const want = each + each*(4+3+1)
	out.WaitFor(want, 2*patience)
	out.Quiet(quiet)

	came := make(map[string][]kafkatest.Received) // by topic and key
	for _, r := range out.Records() {
		came[r.Topic+" "+string(r.Key)] = append(came[r.Topic+" "+string(r.Key)], r)
		if !strings.HasSuffix(string(r.Key), "-"+r.Header("trace")) {
			t.Errorf("%s on %s: headers %v", r.Key, r.Topic, r.Headers)
		}
	}
	if n := len(out.Records()); n != want {
		t.Errorf("%d records, want %d", n, want)
	}
	for i := range each {
		key := fmt.Sprint("broken-", i)
		orders := came["orders "+key]
		if len(orders) != 4 || len(came["orders.failed "+key]) != 1 || len(came["orders fine-"+fmt.Sprint(i)]) != 1 {
			t.Errorf("%s: %d times on orders, %d on orders.failed", key, len(orders), len(came["orders.failed "+key]))
			continue
		}
		for n, rung := range ladder {
			waited, back := came[rung+" "+key], orders[n+1]
			if len(waited) != 1 {
				t.Fatalf("%s: %d times on %s", key, len(waited), rung)
			}
			if back.Header("waterclock-attempt") != fmt.Sprint(n+1) ||
				!strings.HasPrefix(back.Header("waterclock-source"), rung+"/") {
				t.Errorf("%s: attempt %d has headers %v", key, n+1, back.Headers)
			}
			if late := back.Timestamp.Sub(waited[0].Timestamp) - delays[n]; late < 0 {
				kafkatest.Inexact(t, "%s: attempt %d came %s early", key, n+1, -late)
			}
		}
		if a := came["orders.failed "+key][0].Header("waterclock-attempt"); a != "3" {
			t.Errorf("%s: given up after attempt %s", key, a)
		}
	}
}
