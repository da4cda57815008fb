package simulation

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// maxFailing is how many operations of a disk fail at most. With as many in a row the store would end.
const maxFailing = 8

// failDisk has some operations of an instance's disk fail.
func (w *world) failDisk(ctx context.Context, tr trouble) string {
	ills := []*illness{
		{ops: []errorfs.OpKind{errorfs.OpCreate}},
		{ops: []errorfs.OpKind{errorfs.OpLink}}, // a table that is to be taken over as it is
		{ops: []errorfs.OpKind{errorfs.OpFileWrite}},
		{ops: []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo}},
	}
	h, ill, failing := w.hosts[tr.Host], ills[tr.Arg%len(ills)], int64(1+tr.Arg/4%maxFailing)
	ill.left.Store(failing)
	if !h.ill.CompareAndSwap(nil, ill) {
		return ""
	}
	w.wait(ctx, tr.For)
	h.ill.Store(nil)
	failed := failing - max(0, ill.left.Load())
	if failed == 0 {
		return ""
	}
	return fmt.Sprint(failed, " operations")
}
