//go:build cgo

package memory

// storeOutside is true because Pebble takes its cache and its memtables from malloc, outside Go's heap.
const storeOutside = true
