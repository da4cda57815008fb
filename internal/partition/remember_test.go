package partition

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// A timer that has fired keeps its ID taken for as long as it asked, whatever dies in between, and no longer: a request
// that is sent again with the condition "absent" makes no other timer. The timer is no longer pending: no list contains
// it, a cancel finds nothing, and nothing fires when its memory ends.
func TestRememberedThroughRestarts(t *testing.T) {
	for name, restart := range map[string]func(*core){
		"no restart":    func(*core) {},
		"it dies":       func(c *core) { c.acquire() },
		"in good order": func(c *core) { c.settle(); c.p = nil; c.process(); c.acquire() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCore(t, newSetup(t), 1<<20, 1000)
			c.tell()
			once := func(id int) *kgo.Record {
				r := c.schedule(id, 10)
				under(r, waterclock.IfAbsent)
				r.Headers = append(r.Headers,
					kgo.RecordHeader{Key: waterclock.HeaderRemember, Value: []byte("1s the-token")})
				return r
			}
			turns := func(want ...string) {
				t.Helper()
				var got []string
				for range 6 {
					c.deliver(10)
					c.work()
					c.load()
					c.seal(10)
					if c.share != nil {
						got = append(got, c.types()...)
					}
					c.commit()
					c.apply()
				}
				if len(got) != len(want) {
					t.Fatalf("got %q, want %q", got, want)
				}
				for i := range want {
					if got[i] != want[i] {
						t.Fatalf("got %q, want %q", got, want)
					}
				}
			}
			first, other := once(1), once(2)
			turns("id1 scheduled", "id2 scheduled")
			c.pass(10)
			turns("id1 fired", "id2 fired")
			restart(c)
			again := once(1)
			turns("id1 condition-not-met")
			left, err := c.p.Questions.Get(context.Background(), first.Key)
			if err != nil || left == nil || left.State != query.Remembered || left.Remember.Token != "the-token" ||
				left.Source != "r/0/0" {
				t.Fatalf("remembered as %+v, %v", left, err)
			}
			if all := c.walk(query.Page{}); len(all) != 0 {
				t.Errorf("%d are listed that are pending no more", len(all))
			}
			if all := c.walk(query.Page{Filter: query.Filter{State: query.Remembered}}); len(all) != 2 {
				t.Errorf("%d are listed that are remembered, want 2", len(all))
			}
			if all := c.walk(query.Page{Order: query.ByID, Filter: query.Filter{State: query.Remembered}}); len(
				all) != 2 {
				t.Errorf("%d are listed by ID that are remembered, want 2", len(all))
			}
			c.steer(1, waterclock.HeaderTrigger)
			c.cancel(2) // makes it forgotten
			turns()
			afresh := once(2)
			turns("id2 scheduled")
			c.pass(2000)
			turns("id2 fired")
			late := once(1)
			turns("id1 scheduled")
			c.pass(10)
			turns("id1 fired")
			for _, g := range []*kgo.Record{first, other, afresh, late} {
				if c.emitted[g.Offset] == nil {
					t.Errorf("request %d has not fired", g.Offset)
				}
			}
			if c.emitted[again.Offset] != nil {
				t.Error("what was sent again has fired")
			}
			c.pass(5000)
			turns()
			if n := c.s.subs.Pending(); n != 0 || len(c.fold(1<<62)) != 0 {
				t.Errorf("%d are left when all memories have ended", n)
			}
		})
	}
}
