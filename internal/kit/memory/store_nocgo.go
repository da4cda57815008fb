//go:build !cgo

package memory

// storeOutside says that Pebble's cache and memtables are part of Go's heap.
const storeOutside = false
