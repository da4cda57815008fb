// Package targets knows target topics and says which of their partitions can be written to now.
//
// Three types have three kinds of knowledge:
//
//   - [Metadata] is what brokers say of topics: partitions, limits, and that a topic does not exist.
//     Nobody waits for a broker. What is not known is asked for in the background, and the caller
//     comes again.
//   - [Leaders] is what follows from metadata and from the connections to brokers: a partition without
//     a leader, or with one that cannot be reached, takes no writes now. Nothing has to be tried to know
//     when that ends.
//   - [Health] is what only writes tell. It has a breaker for each partition that failed. While a breaker is
//     open, a [Prober] tries the partition with transactions that it aborts. Behind a probe that
//     succeeds the breaker is half-open: emissions pass one, two, four … at a time ([Waiter], [Permit]).
//
// The package does not know what is written, or by which transaction.
package targets
