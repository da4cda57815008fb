package brokers

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// cutPart is how many records are written to a fixed-delay topic at each stage of its life.
const cutPart = 40

// delayed are three fixed-delay topics of one partition, which lose what was written last. That of the setup loses its
// log.
type delayed struct {
	*rig.Setup
	regrown     string          // its log, which has grown again
	checkpoints string          // its log of checkpoints
	want        map[string]bool // what was to be passed on so far, by topic and key
}

func (d *delayed) all() []string { return []string{d.Requests, d.regrown, d.checkpoints} }

// send writes cutPart records to each topic. They are to be passed on, unless their offsets already were.
func (d *delayed) send(stage string, passed bool, to ...string) {
	d.Helper()
	var recs []*kgo.Record
	for _, topic := range to {
		for i := range cutPart {
			key := fmt.Sprintf("%s-%d", stage, i)
			recs = append(recs, &kgo.Record{Topic: topic, Key: []byte(key)})
			if passed {
				d.want[topic+" "+key] = true
			}
		}
	}
	rig.Send(d, d.Cluster.Client(d.T), recs...) // a producer goes with the log that it has written to
}

func (d *delayed) serve(more ...string) *rig.Process {
	args := append([]string{"serve"}, more...)
	args = append(args, "--brokers", strings.Join(d.Cluster.Seeds(), ","), "--targets", "*", "--group", d.Group(),
		"--data-dir", d.TempDir())
	for _, topic := range d.all() {
		args = append(args, "--delay", topic+":200ms:"+d.Target)
	}
	return rig.Start(d, args...)
}

// check waits for all that was to be passed on, and holds that each record was, once.
func (d *delayed) check() {
	d.Helper()
	d.Out.WaitFor(len(d.want), rig.Patience)
	d.Out.Quiet(time.Second)
	got := make(map[string]int)
	for _, r := range d.Out.Records() {
		topic, _, _ := strings.Cut(r.Header("waterclock-source"), "/")
		got[topic+" "+string(r.Key)]++
	}
	for _, x := range slices.Sorted(maps.Keys(d.want)) {
		if got[x] != 1 {
			kafkatest.Inexact(d, "%s came %d times, want once", x, got[x])
		}
		delete(got, x)
	}
	for x := range got {
		kafkatest.Inexact(d, "%s came, whose offset was passed on before", x)
	}
}

// One partition loses its tail, one has grown past it again when an instance looks, and one loses its last
// checkpoints: the copies that a broker had of them are from before. An instance runs meanwhile, or starts
// then. Nothing is passed on twice, and what is not passed on is said. The cures that docs/OPERATIONS.md and
// docs/DELAY.md have cure it.
func TestFixedDelayTopicsLoseTheirTails(t *testing.T) {
	runs.NeedSlow(t)
	c := kafkatest.Start(t, 1)
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprint("an instance runs meanwhile: ", running), func(t *testing.T) { loseTails(t, c, running) })
	}
}

func loseTails(t *testing.T, c *kafkatest.Cluster, running bool) {
	d := &delayed{Setup: rig.NewSetup(t, c, 1, 1), want: make(map[string]bool)}
	d.regrown, d.checkpoints = c.CreateTopic(t, 1, nil, d.Requests+"-regrown"),
		c.CreateTopic(t, 1, nil, d.Requests+"-checkpoints")
	serves := func(stage string, more ...string) *rig.Process {
		t.Helper()
		p := d.serve(more...)
		p.Ready(3, rig.Patience)
		d.send(stage, true, d.all()...)
		d.check()
		return p
	}
	serves("early").End()
	cut, copied := []string{d.Requests, d.regrown, topics.Checkpoints(d.checkpoints)}, t.TempDir()
	whileStopped(t, c, func(data, _ string) error {
		for _, topic := range cut {
			if err := os.CopyFS(filepath.Join(copied, topic), os.DirFS(filepath.Join(data, topic+"-0"))); err != nil {
				return err
			}
		}
		return nil
	})
	p := serves("lost")
	if !running {
		p.End()
	}
	long := d.Written(d.Requests)
	whileStopped(t, c, func(data, _ string) error {
		for _, topic := range cut {
			dir := filepath.Join(data, topic+"-0")
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(copied, topic))); err != nil {
				return err
			}
		}
		return nil
	})
	if end := d.Written(d.Requests); end != cutPart || long != 2*cutPart {
		t.Fatalf("the log was %d long and is %d now: it was not cut", long, end)
	}
	d.send("instead", false, d.regrown)
	d.send("behind", true, d.regrown)

	if !running {
		p = d.serve()
	}
	d.send("more", true, d.checkpoints) // the cure of the lost checkpoints lets it pass
	var body string
	await.Until(t, rig.Patience, "one partition is live, and two refuse", func() bool {
		_, body = p.Readyz()
		return strings.Count(body, `"live"`) == 1 && strings.Count(body, `"failed"`) == 2
	})
	for _, says := range []string{
		fmt.Sprintf("position %d of %s/0 lies beyond the log's end %d", 2*cutPart, d.Requests, cutPart),
		fmt.Sprintf("%s/0 was cut at offset %d and has grown again", d.regrown, cutPart),
		fmt.Sprintf(
			"offset %d is committed for %s/0 and the last checkpoint in %s is at %d: later checkpoints were lost",
			2*cutPart, d.checkpoints, topics.Checkpoints(d.checkpoints), cutPart),
	} {
		if !strings.Contains(body, says) {
			t.Errorf("/readyz does not say %q: %s", says, body)
		}
	}
	if n := p.Metric("waterclock_requests_cut_total", "topic", d.regrown); n != cutPart {
		t.Errorf("%v offsets are counted as cut, want %d", n, cutPart)
	}
	p.End()

	d.send("filler", false, d.Requests)
	p = serves("last", "--accept-lost-changelog")
	p.End()
	if !strings.Contains(p.Output(), "last checkpoints lost and accepted as lost") {
		t.Error("the log does not say that the offset decides")
	}
	serves("at last").End()
}
