// Package traces tests that a collector gets the spans of a timer's way. It is a module of its own, because
// OpenTelemetry's receiver is large and the service does not need it.
package traces
