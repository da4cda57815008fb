//go:build cgo

package memory

// storeOutside says that Pebble takes its cache and its memtables from malloc. Go's heap does not
// hold them.
const storeOutside = true
