package node_test

import (
	"io"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// A broker dies while an instance checks its topics at the start: it asks again.
func TestConnectionThatBreaksAtTheStart(t *testing.T) {
	t.Parallel()
	c := fake(t, "breaks")
	const cuts = 12 // more than the client itself tries again
	var asked atomic.Int32
	c.ControlKey(int16(kmsg.DescribeConfigs), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if asked.Add(1) > cuts {
			return nil, nil, false
		}
		return nil, io.EOF, true
	})
	in := rig.Serve(t, rig.Config(t, c.ListenAddrs(), requests), node.Options{})
	in.Ready(2, limit)
	if n := asked.Load(); n <= cuts {
		t.Errorf("topics were asked about %d times, the first %d without an answer", n, cuts)
	}
}
