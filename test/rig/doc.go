// Package rig starts instances of the service for tests, in the test's process or as processes of the real binary, and
// reads what a user would see: /readyz and /metrics. Tests make their assertions through plain Kafka clients.
package rig
