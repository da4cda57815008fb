// Package rig starts instances of the service for tests, in the test's process or as processes of the real binary, and
// reads the views of a user, /readyz and /metrics:
//
//	in := rig.Serve(t, cfg, node.Options{})
//	in.Stop()
//
// Tests make their assertions through plain Kafka clients.
package rig
