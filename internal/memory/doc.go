// Package memory decides how much memory a process uses, and divides it.
//
// There is one number. The peak of the process (VmHWM) stays within a tenth of it, in every workload.
// Divide says what each part may hold. Shares.Heap is what Go's heap may take with its garbage; Limit makes
// it the runtime's soft limit. Live data must stay well below it, because near the limit collections would
// follow each other without end. The parts that are always there take half of the number if all are full at once, and an
// eighth for the store. Calls and overlays, which are there while somebody asks, take another sixth.
//
// The runtime's own means are enough. Below the soft limit the heap grows to five times what is live
// before a collection, and at the limit collections come as often as they must. An earlier version had a
// governor of its own, which kept heaps small and spent on that most of the processor time that memory
// could have spared.
package memory
