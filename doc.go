// Package waterclock is the client of waterclock, a timer service that lives
// inside Kafka.
package waterclock
