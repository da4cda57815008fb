// Package memory decides how much memory a process uses, and divides it.
//
// There is one number. The peak of the process (VmHWM) stays within a tenth of it, in every workload.
// Divide says what each part may hold. Shares.Heap is what Go's heap may take with its garbage; Limit makes
// it the runtime's soft limit. Live data must stay well below it, because near the limit collections would
// follow each other without end. If all are full at once, the parts that always exist take half of the number, and the
// store an eighth. Calls, and what questions read, take another sixth while somebody asks.
//
// The runtime does the rest. Below the soft limit the heap grows to five times the live data before a collection
// starts, and near the limit collections come as often as they must. An earlier version had a governor of its own,
// which kept heaps small, and spent more processor time on collections than that was worth.
package memory
