// Package calendars has the exclusion calendars of a group. They are the records of a compacted topic with one
// partition: the key is the name, the value the rules as JSON, as they were put; a null value deletes the calendar.
//
//	table := calendars.New(calendars.Options{Client: cl, Topic: topics.Calendars(group), ...})
//	go table.Run(ctx)
//	err := table.CaughtUp(ctx)            // every calendar that was put before this call is known
//	c, ok := table.Now().Get("holidays")
//
// Anyone with the right to write may write to the topic, so nothing in it is trusted. A record with a bad name or bad
// rules, or one that goes beyond a limit, is ignored, and the version before it stays in force. (Once compaction has
// removed that version, an instance that starts later does not have it.)
//
// If the topic is gone, the calendars that the process knows stay in force until it ends, or until the topic is there
// again: then those in it are all.
package calendars
