// Package targets knows target topics and which of their partitions can be written to now.
//
//	info, ok := metadata.Cached(topic)   // partitions and limits; !ok: being looked up, come again
//	if !health.Allow(partition, nil) {   // a breaker is open
//		waiter.Wait(partition)           // keep the emission; the waiter's owner is woken
//	}
//
// Package partition asks Allow for each firing when it seals a step (sealedStep.route). If the answer is no, the firing
// is rolled back and its timer parked, until the waiter is told that some may pass (parking.unpark, Waiter.Admit).
//
// Three types have three kinds of knowledge:
//
//   - [Metadata] caches the brokers' answers about topics: partitions, limits, and whether a topic exists. No caller
//     waits for a broker: unknown topics are looked up in the background, and the caller comes again.
//   - [Leaders] follows from metadata and from the connections to brokers: a partition without a reachable leader takes
//     no writes now (Leaders.Unreachable). No write has to be tried to know when that ends.
//   - [Health] is the part that only writes show. It has a breaker for each partition that failed. While a breaker is
//     open, a [Prober] tries the partition with transactions that it aborts. After a probe that succeeds the breaker is
//     half-open: it admits one, two, four … emissions at a time ([Waiter], [Permit]).
//
// The package knows nothing of the records or of the transaction that they are written in.
package targets
