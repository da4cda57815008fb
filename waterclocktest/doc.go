// Package waterclocktest is waterclock for the unit tests of its users: a server in memory that speaks the HTTP API,
// and whose timers fire by a clock that the test moves.
//
//	s := waterclocktest.New(t, waterclocktest.Options{})
//	remind(ctx, s.Client(), order) // the code under test schedules a timer
//
//	if fired := s.Advance(23 * time.Hour); len(fired) > 0 {
//		t.Errorf("too early: %v", fired)
//	}
//	fired := s.Advance(time.Hour)
//	if len(fired) != 1 || fired[0].ID != "order-17-reminder" {
//		t.Errorf("fired: %v", fired)
//	}
//
// The code under test uses a real [client.Client], and requests are parsed, validated and decided, recurrences
// computed, and dead letters and events written by the code of the product. The server leaves out everything that needs
// Kafka: there is one instance, each topic has one partition, a target takes every record, and nothing is kept. There
// are no fixed-delay topics, no quotas, and no rights.
//
// A test needs neither Kafka nor a network beyond the loopback, and never waits: [Server.Advance] returns once all is
// fired that is due by then.
package waterclocktest
