// Package memory decides how much memory a process uses, and divides it.
//
//	size, why := memory.Choose(os.DirFS("/"))
//	shares := memory.Divide(size)
//	shares.Limit()
//
// The size is one number. The peak of the process (VmHWM) stays within a tenth of it, in every workload. Divide
// computes the limit of each part. Shares.Heap is the limit of Go's heap with its garbage; Limit makes it the
// runtime's soft limit. Live data must stay well below it, because near the limit collections would follow each other
// without end. If all parts are full at the same time, the permanent ones take half of the size and the store an
// eighth. Calls, and queries that read many timers, take another sixth while they run.
//
// The runtime does the rest. Below the soft limit the heap grows to five times the live data before a collection
// starts, and near the limit collections come as often as necessary. An earlier version had its own governor, which
// kept heaps small and spent more processor time on collections than that was worth.
package memory
