package targets

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// However many topics requests have named, each look-up asks for some of them: brokers answer a request for a hundred
// thousand topics too late, and then the look-up was useless.
func TestManyTopicsAreAskedForInParts(t *testing.T) {
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "there"))
	var most atomic.Int64
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		most.Store(max(most.Load(), int64(len(req.(*kmsg.MetadataRequest).Topics))))
		return nil, nil, false
	})
	targets := NewMetadata(cl, MetadataOptions{})
	names := []string{"there"}
	for i := range 2*maxWanted + 1 {
		names = append(names, fmt.Sprint("not-there-", i))
	}
	must(t, targets.Refresh(t.Context(), names...))
	if n := most.Load(); n > maxWanted {
		t.Errorf("asked for %d topics at once, want %d at most", n, maxWanted)
	}
	if _, known := targets.Cached("there"); !known {
		t.Error("the one that is there is not known")
	}
}
