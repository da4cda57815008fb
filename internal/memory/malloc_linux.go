//go:build cgo && linux

package memory

/*
#include <malloc.h>

#ifdef __GLIBC__
// Where the store's memory comes from malloc, all threads take it from one place, and large blocks
// are given back when they are freed. With an arena for each thread, and a threshold that glibc
// raises by itself, a store of 32 MiB took 68. A thread keeps the arena that it has begun with: so
// this runs before there are others.
__attribute__((constructor)) static void oneArena(void) {
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 256 << 10);
}
#endif
*/
import "C"
