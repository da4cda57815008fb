//go:build cgo && linux

package memory

/*
#include <malloc.h>

#ifdef __GLIBC__
// The store's memory comes from malloc. With one arena for all threads, large blocks are returned to the system when
// they are freed. With an arena for each thread, and a threshold that glibc raises by itself, a store of 32 MiB took
// 68 MiB. A thread keeps its first arena, so this runs before there are other threads.
__attribute__((constructor)) static void oneArena(void) {
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 256 << 10);
}
#endif
*/
import "C"
