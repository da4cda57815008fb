// Package replay reads a changelog partition and folds it into a store: timers, the last checkpoint, and the last
// writer.
//
//	r := replay.NewReplay(reader, fold)
//	r.Continue(last, at, named)  // if the store has an older fold already
//	err := r.To(ctx, end)        // may be called again, with a later end
package replay
