// Package targets knows target topics and says which of their partitions can be written to now.
//
// Three types have three kinds of knowledge:
//
//   - [Metadata] is what brokers say about topics: partitions, limits, and whether a topic exists. No caller waits for
//     a broker: what is not known is looked up in the background, and the caller comes again.
//   - [Leaders] is what follows from metadata and from the connections to brokers: a partition without a leader, or
//     with one that cannot be reached, takes no writes now. No write has to be tried to know when that ends.
//   - [Health] is what only writes show. It has a breaker for each partition that failed. While a breaker is open, a
//     [Prober] tries the partition with transactions that it aborts. After a probe that succeeds the breaker is
//     half-open: it admits one, two, four … emissions at a time ([Waiter], [Permit]).
//
// The package does not know what is written, or in which transaction.
package targets
