// Package waterclock is the client of waterclock, a timer service that lives inside Kafka. A producer writes a record
// that says when it is due and on which topic. At that time the record appears on that topic, once.
//
// # Schedule
//
// A request is an ordinary record on a request topic, here timers. Its key is the timer's ID, its value is the payload,
// and its headers give the due time and the target topic. [Schedule] builds a request, and any kgo client can send it:
//
//	rec, err := waterclock.Schedule("timers", "order-17-reminder",
//		waterclock.After(24*time.Hour),
//		waterclock.To("reminders"),
//		waterclock.Value(payload))
//	if err != nil {
//		return err // it names every fault of the request
//	}
//	if err := client.ProduceSync(ctx, rec).FirstErr(); err != nil {
//		return err
//	}
//
// [At] takes an instant instead of a duration. [Header] adds headers that are passed through with the payload. [Key],
// [NullKey] and [Partition] choose the key and partition of the emission; without them its key is the timer's ID.
//
// A client in any other language does the same by setting headers. The constants [HeaderAt] to [HeaderLabelsHeader] are
// the whole protocol.
//
// # Recur
//
// [Every] and [Cron] make a timer recur. [Until] and [Count] end the recurrence:
//
//	rec, err := waterclock.Schedule("timers", "report-lagos",
//		waterclock.Cron("0 9 * * mon-fri"), waterclock.Zone("Africa/Lagos"),
//		waterclock.To("reports"))
//
// Emission.Occurrence is the number of the occurrence. [CatchUp] decides what happens to missed occurrences. [Jitter]
// spreads timers that would all fire at once. [MaxLate] sets how late any timer may fire; an occurrence that would be
// later expires.
//
// # Reschedule and cancel
//
// A further request with the same ID replaces the timer, whether it is pending, firing or has fired. [Cancel] cancels a
// pending timer:
//
//	rec, err := waterclock.Cancel("timers", "order-17-reminder")
//
// [Trigger] fires a pending timer now, [Pause] stops it from firing, and [Resume] lets it fire again. [If] makes a
// request conditional on the pending timer at the request's position in the log:
//
//	rec, err := waterclock.Cancel("timers", "order-17-reminder", waterclock.If(source.String()))
//
// Either the firing happens or the cancel or replacement does, never both. Requests take effect in the order of the
// log; timestamps do not matter. Between a request and a firing, the one that the service plans first wins. All
// requests for one ID must therefore be on one partition, so all producers of a request topic need the same
// partitioner: Java's murmur2, which is kgo's default. (librdkafka needs partitioner=murmur2_random.)
//
// # Receive
//
// Consume target topics with isolation.level=read_committed:
//
//	client, err := kgo.NewClient(
//		kgo.ConsumeTopics("reminders"),
//		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
//
// Without it a consumer also sees aborted attempts: it may see a firing twice, or a firing of a timer that was
// cancelled after all.
//
// The key and value of an emission are those that the request asked for. [ParseEmission] returns the rest: which timer
// fired, when it was due, and which request scheduled it. To schedule the emission again, pass its headers to
// [Headers], which leaves out those that waterclock wrote.
//
// # When a request is rejected
//
// A successful send means only that the request is written. The service may still reject it, for example because the
// target is not allowed, or because it gives seconds instead of milliseconds. A rejected request changes nothing and
// appears on the topic timers.waterclock.dead-letters. So does an emission that its target refuses for good.
// [ParseDeadLetter] reads dead letters and [Reasons] lists the codes. Nothing is dropped silently.
//
// # The history of a timer
//
// Events can be switched on for a request topic. Each change to one of its timers is then also written to
// timers.waterclock.events, in the same transaction as the change itself. [ParseEvent] reads the events. Read with
// isolation.level=read_committed they are the history of each timer.
//
// # What is promised
//
// Each request has exactly one outcome, and a read_committed consumer sees each firing at most once, even through
// crashes, pauses and rebalances. A timer never fires early, and a timer that is past due fires immediately. Instants
// are in milliseconds; fractions round up. If a producer writes a request twice, the service sees two requests. While
// the timer is pending the second one changes nothing; after the firing it makes the timer fire again. Use an
// idempotent producer, which is kgo's default.
//
// This package and package client, which calls the HTTP API, are the public API of the module. Its other packages can
// be imported by accident, but they change without notice.
package waterclock
