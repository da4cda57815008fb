package waterclock_test

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// What happened to the timers of a request topic, and which are pending, according to the
// events in timers.waterclock.events, read with isolation.level=read_committed.
func ExampleParseEvent() {
	records := []*kgo.Record{
		{Key: []byte("trial-9"), Value: []byte(`{"format":1,"type":"scheduled","id":"trial-9","at":1893484800120,` +
			`"source":"timers/0/17","target":"trials","pending":{"due":1893488400000,"occurrence":1}}`)},
		{Key: []byte("trial-8"), Value: []byte(`{"format":1,"type":"scheduled","id":"trial-8","at":1893484800120,` +
			`"source":"timers/0/18","target":"trials","pending":{"due":1893484860000,"occurrence":1}}`)},
		{Key: []byte("trial-8"), Value: []byte(`{"format":1,"type":"fired","id":"trial-8","at":1893484860004,` +
			`"source":"timers/0/18","due":1893484860000,"occurrence":1,"lateness":4,"target":"trials","partition":2,` +
			`"emission":"AAECAwQFBgcICQoLDA0ODw.0.18.1","pending":null}`)},
		{Key: []byte("trial-9"), Value: []byte(`{"format":1,"type":"rejected","id":"trial-9","at":1893484900000,` +
			`"source":"timers/0/19","reason":"bad-time","detail":"timer-at is \"tomorrow\""}`)},
	}
	pending := make(map[string]*waterclock.Pending)
	for _, rec := range records {
		e, err := waterclock.ParseEvent(rec)
		if err != nil {
			fmt.Println(err)
			return
		}
		switch e.Type {
		case waterclock.EventFired:
			fmt.Printf("%s fired on %s, %s late\n", e.ID, e.Target, e.Lateness)
		case waterclock.EventRejected:
			fmt.Printf("%s: request %s was rejected: %s\n", e.ID, e.Source, e.Reason)
		default:
			fmt.Printf("%s %s\n", e.ID, e.Type)
		}
		if !e.Unknown { // a rejected request does not change what is pending
			pending[e.ID] = e.Pending
		}
	}
	for id, p := range pending {
		if p != nil {
			fmt.Printf("%s is pending for %s\n", id, waterclock.FormatInstant(p.Due.UnixMilli()))
		}
	}
	// Output:
	// trial-9 scheduled
	// trial-8 scheduled
	// trial-8 fired on trials, 4ms late
	// trial-9: request timers/0/19 was rejected: bad-time
	// trial-9 is pending for 1893488400000
}
