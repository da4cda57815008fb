//go:build !cgo

package memory

// storeOutside is false because Pebble's cache and memtables are part of Go's heap.
const storeOutside = false
