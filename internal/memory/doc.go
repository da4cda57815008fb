// Package memory decides how much memory a process uses, and divides it.
//
// There is one number. What the process holds at its peak (VmHWM) stays within a tenth of it, in
// every workload. Divide says what each part may hold, and sets the runtime's soft limit so that
// garbage takes what is left. So the sum of what is live must stay well below that limit: near it
// collections would follow each other without an end. The parts that are always there take half of
// the number when all are full at once, those that are there while somebody asks (calls, overlays)
// another sixth.
//
// The runtime's own means are enough: below the soft limit the heap grows to five times what is
// live, and at the limit collections come as often as they must. An earlier version had a governor
// of its own, which kept heaps small: it took most of the processor time that memory could have
// spared.
package memory
