// Package partlog reads Kafka logs with fetches of its own, and knows how far it has read.
//
// A Reader reads one partition, page by page, and reports positions:
//
//	r := partlog.NewReader(client, partlog.Log{Topic: "timers", Partition: 3}, from)
//	for r.Position() < end {
//		page, err := r.Next(ctx, wait)
//		// page.Records: committed, in order, without gaps and repeats
//	}
//
// A Consumer reads many partitions, each into a Sink that says how much room it has:
//
//	c := partlog.NewConsumer(client, partlog.MaxUnpacked, fetchBytes)
//	c.Add("timers", 3, from, sink)
//	err := c.Run(ctx)
//
// kgo's consumer cannot be used for this, for two reasons. It returns records, and does not tell that it has read past
// something else: a control marker, an aborted batch (even if its marker lies beyond the last stable offset), or a
// batch that compaction emptied. If a log ends in those, it never learns that it has reached the end. And it builds
// every record before its caller can object, and stops before a batch that it cannot decode: see Consumer.
//
// Neither assigns partitions, commits offsets, or resets a position by itself. A Reader's call waits out temporary
// errors (no leader, a leader elsewhere, a broken connection), with back-off, until its context ends. It returns the
// others: *OutOfRangeError and ErrTopicGone, a missing permission, an *Unreadable batch.
package partlog
