// Package waterclock is the client of waterclock, a timer service that lives
// inside Kafka. A producer writes a record that says when and where to; at that
// moment the record appears on that topic, once.
//
// # Schedule
//
// A request is an ordinary record on a request topic, here timers. Its key is
// the timer's ID, its value the payload, its headers say when and where to.
// [Schedule] builds one, any kgo client sends it:
//
//	rec, err := waterclock.Schedule("timers", "order-17-reminder",
//		waterclock.After(24*time.Hour),
//		waterclock.To("reminders"),
//		waterclock.Value(payload))
//	if err != nil {
//		return err // names all that is wrong with the request
//	}
//	if err := client.ProduceSync(ctx, rec).FirstErr(); err != nil {
//		return err
//	}
//
// [At] names an instant instead of a duration. [Header] adds headers that travel
// with the payload. [Key], [NullKey] and [Partition] say where on the target
// topic the emission goes; without them its key is the timer's ID.
//
// Any other client in any language does the same with the headers named here:
// the constants [HeaderAt] to [HeaderRemember] are the whole protocol.
//
// # Recur
//
// [Every] and [Cron] make a timer that fires again and again, with [Until] or
// [Count] up to an end:
//
//	rec, err := waterclock.Schedule("timers", "report-lagos",
//		waterclock.Cron("0 9 * * mon-fri"), waterclock.Zone("Africa/Lagos"),
//		waterclock.To("reports"))
//
// Emission.Occurrence counts what is scheduled. [CatchUp] says what becomes of
// occurrences that were missed, [Jitter] spreads what many timers would do at once.
// [MaxLate], for any timer, says what is too late to be of use.
//
// # Re-schedule and cancel
//
// A further request with the same ID replaces the one before, whether that is
// pending, firing or fired. [Cancel] takes a timer back:
//
//	rec, err := waterclock.Cancel("timers", "order-17-reminder")
//
// [Trigger] has one that is pending fire now, [Pause] has it not fire, [Resume] has it
// fire again. [If] puts a request under a condition on what is pending where it stands
// in the log:
//
//	rec, err := waterclock.Cancel("timers", "order-17-reminder", waterclock.If(source.String()))
//
// Either the firing happens or the cancel or replacement does, never both. Among
// requests the order of the log counts, never a timestamp; against a firing,
// whichever the service plans first. So all requests for one ID must lie on one
// partition. All producers of a request
// topic therefore need the same partitioner, Java's murmur2, which is kgo's
// default. (librdkafka needs partitioner=murmur2_random.)
//
// # Receive
//
// Consume target topics with isolation.level=read_committed:
//
//	client, err := kgo.NewClient(
//		kgo.ConsumeTopics("reminders"),
//		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
//
// A consumer that does not sees aborted attempts too, so a firing more than once
// or one that was cancelled after all.
//
// Key and value of an emission are what the request asked for. [ParseEmission]
// tells the rest: which timer it was, when it was due, which request it comes
// from. To schedule it again, pass its headers to [Headers]: those that
// waterclock wrote fall away.
//
// # When a request is rejected
//
// Sending tells only that the request is written. One that is rejected
// (a target that is not allowed, seconds sent for milliseconds) changes nothing
// and appears on the topic timers.waterclock.dead-letters, as does an emission
// that its target refuses for good. [ParseDeadLetter] reads it; [Reasons] lists
// the codes. Nothing is dropped silently.
//
// # What became of it
//
// A request topic can be given events: then each thing that happens to one of its
// timers is a record of timers.waterclock.events, in the same transaction as what it
// tells of. [ParseEvent] reads them; read with isolation.level=read_committed they are
// the history of each timer.
//
// # What is promised
//
// Each request has exactly one outcome, and a read_committed consumer sees each
// firing at most once: through crashes, pauses and rebalances. A timer never
// fires early; one that is past due fires at once. Instants are milliseconds,
// fractions round up. A request that the producer wrote twice is two requests:
// while the timer is pending the second changes nothing; after the firing it
// fires again. Use an idempotent producer, which is kgo's default.
//
// This package is the only public API of its module. The module's other
// packages can be imported by accident; they change without notice.
package waterclock
