package rig

import (
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Timer returns a request, as any Kafka client would write it.
func Timer(requests, target, id string, due time.Time) *kgo.Record {
	return &kgo.Record{Topic: requests, Key: []byte(id), Value: []byte("payload of " + id), Headers: []kgo.RecordHeader{
		{Key: "timer-at", Value: []byte(strconv.FormatInt(due.UnixMilli(), 10))},
		{Key: "timer-target-topic", Value: []byte(target)},
	}}
}

// Request returns a request as any Kafka client would write it, with headers given as name, value.
func Request(requests, id, value string, headers ...string) *kgo.Record {
	return With(&kgo.Record{Topic: requests, Key: []byte(id), Value: []byte(value)}, headers...)
}

// With adds headers to a record, given as name, value, and returns it.
func With(r *kgo.Record, headers ...string) *kgo.Record {
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return r
}

// Send writes records and returns once all are in the log, in order.
func Send(t testing.TB, cl *kgo.Client, recs ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatalf("send: %v", err)
	}
}
