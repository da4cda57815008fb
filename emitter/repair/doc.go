// Package repair ends hanging transactions and writes lost transaction markers.
//
//	go markers.Run(ctx)               // writes the markers that brokers lost
//	go watch.Run(ctx)                 // ends transactions of dead processes of this group
//	n, err := repair.End(ctx, opts)   // before a changelog partition is acquired
//
// A hanging transaction (KIP-664) holds back the read_committed readers of every partition that it touched. A
// transaction can come to hang in three ways, each with its repair:
//
//   - The process that began it is gone. Each instance looks for such transactions of its group once a second and ends
//     them ([Watch]).
//   - A new owner finds a transaction of the former one open on its changelog partition, and ends it ([End]).
//   - The transaction ended while a partition had no leader, and that partition never got its marker (KAFKA-20734).
//     [Markers] remembers how transactions ended, and writes the missing marker.
//
// A transaction is ended only by fencing its producer while the transaction is still the one that was seen. A marker is
// written only if it is certain how the transaction ended.
package repair
