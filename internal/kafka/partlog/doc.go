// Package partlog reads Kafka logs with fetches of its own, and knows how far it has read.
//
// A Reader reads one partition, page by page, and reports positions:
//
//	r := partlog.NewReader(client, partlog.Log{Topic: "timers", Partition: 3}, from)
//	for page, err := range r.To(ctx, end) {
//		if err != nil {
//			return err
//		}
//		// page.Records: committed, in order, without gaps and repeats
//	}
//
// To is built on [Reader.Follow], which pauses, looks the leader up again, and notices a log that was cut.
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
//
// # A log that ends too early
//
// Follow has an offset to reach. A leader has named it, or a record before it was read or acknowledged. So if the log
// ends before it, either records were lost, or the leader that answers is behind. Only the first is an error, because
// no wait helps then, and the caller gives up what it has built on those records.
//
// The high watermark cannot tell. A new leader starts with the high watermark that it knew as a follower. Followers
// hear of it with the fetch after the one that has moved it, so it may be below one that the former leader has shown.
// There it stays until every replica of the ISR has fetched from the new leader: for replica.lag.time.max.ms, 30 s,
// if one of them is dead. A fetch from a position between the high watermark and the log's end brings nothing, and is
// no error.
//
// The end of the leader's own log tells. What is below a high watermark that was ever shown is in the log of each
// replica of the ISR, and a new leader comes from there. So its log has reached that offset when it begins to lead, and
// it never ends before it, unless the election was unclean or a disk has lost its end: then records are lost.
//
// A log may also look too short for two reasons that lose nothing. A former leader answers, which does not know its
// successor and lacks what that has written. Or the offset to reach was itself the end of a leader's log, beyond the
// high watermark, and what stood there was lost with that leader, before anybody could count on it. Therefore Follow
// looks the leader up again every second in which nothing comes, asks end again, and returns ErrLogCut only if the log
// has ended too early each time for CutAfter. The same holds for a position beyond the log's end, which a leader
// refuses. A position below its start is an error immediately: no log gets its start back.
package partlog
