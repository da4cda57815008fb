package waterclock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// broker starts a broker in this process. It takes the place of your Kafka.
func broker(topics ...string) (seed string, stop func()) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, topics...))
	if err != nil {
		panic(err)
	}
	return cluster.ListenAddrs()[0], cluster.Close
}

// service stands in for waterclock: it writes one record, as the service would, in a transaction.
func service(seed string, rec *kgo.Record) {
	client, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.TransactionalID("waterclock"))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()
	if err := client.BeginTransaction(); err != nil {
		panic(err)
	}
	if err := client.ProduceSync(ctx, rec).FirstErr(); err != nil {
		panic(err)
	}
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		panic(err)
	}
}

// receive consumes one record. It reads committed records only. Otherwise it would also see attempts that were aborted.
func receive(seed, topic string) *kgo.Record {
	client, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			panic(err)
		}
		if records := fetches.Records(); len(records) > 0 {
			return records[0]
		}
	}
}

// Any client can send a request: it is an ordinary record.
func Example() {
	seed, stop := broker("timers")
	defer stop()
	client, err := kgo.NewClient(kgo.SeedBrokers(seed))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	rec, err := waterclock.Schedule("timers", "a1",
		waterclock.After(10*time.Second), waterclock.To("orders"), waterclock.Value([]byte("hello")))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := client.ProduceSync(context.Background(), rec).FirstErr(); err != nil {
		fmt.Println(err)
		return
	}

	show(receive(seed, "timers"))
	// Output:
	// key a1, value hello
	// timer-after: 10000ms
	// timer-target-topic: orders
}

// What an emission tells the consumer of a target topic.
func ExampleParseEmission() {
	seed, stop := broker("orders")
	defer stop()
	service(seed, &kgo.Record{Topic: "orders", Key: []byte("a1"), Value: []byte("hello"), Headers: []kgo.RecordHeader{
		{Key: "type", Value: []byte("Reminder")},
		{Key: waterclock.HeaderID, Value: []byte("a1")},
		{Key: waterclock.HeaderDue, Value: []byte("1893488400000")},
		{Key: waterclock.HeaderOccurrence, Value: []byte("1")},
		{Key: waterclock.HeaderSource, Value: []byte("timers/3/4711")},
		{Key: waterclock.HeaderEvent, Value: []byte("3lXn.3.4711.1")},
	}})

	rec := receive(seed, "orders")
	e, err := waterclock.ParseEmission(rec)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("timer %s, due %s, requested at %s\n", e.ID, e.Due.Format(time.RFC3339), e.Source)
	fmt.Printf("%s: %s\n", e.Headers[0].Key, e.Headers[0].Value)
	// Output:
	// timer a1, due 2030-01-01T09:00:00Z, requested at timers/3/4711
	// type: Reminder
}

// A consumer that could not do its work schedules the record again in a minute, with the same ID, payload and headers.
func ExampleHeaders() {
	received := &kgo.Record{Topic: "orders", Value: []byte("hello"), Headers: []kgo.RecordHeader{
		{Key: "type", Value: []byte("Reminder")},
		{Key: waterclock.HeaderID, Value: []byte("a1")},
		{Key: waterclock.HeaderDue, Value: []byte("1893488400000")},
	}}
	again, err := waterclock.Schedule("timers", "a1",
		waterclock.After(time.Minute),
		waterclock.To(received.Topic),
		waterclock.Value(received.Value),
		waterclock.Headers(received.Headers))
	if err != nil {
		fmt.Println(err)
		return
	}
	show(again)
	// Output:
	// key a1, value hello
	// timer-after: 60000ms
	// timer-target-topic: orders
	// type: Reminder
}

// Why a request was rejected.
func ExampleParseDeadLetter() {
	seed, stop := broker("timers.waterclock.dead-letters")
	defer stop()
	service(seed, &kgo.Record{Topic: "timers.waterclock.dead-letters", Key: []byte("a1"), Headers: []kgo.RecordHeader{
		{Key: waterclock.HeaderAt, Value: []byte("1893488400")},
		{Key: waterclock.HeaderReason, Value: []byte(waterclock.ReasonSecondsNotMillis)},
		{Key: waterclock.HeaderDetail, Value: []byte("timer-at is 1893488400: send milliseconds.")},
		{Key: waterclock.HeaderSource, Value: []byte("timers/3/4711")},
	}})

	d, err := waterclock.ParseDeadLetter(receive(seed, "timers.waterclock.dead-letters"))
	if err != nil {
		fmt.Println(err)
		return
	}
	if d.Reason == waterclock.ReasonSecondsNotMillis {
		fmt.Printf("timer %s of %s: %s\n", d.ID, d.Source, d.Detail)
	}
	// Output: timer a1 of timers/3/4711: timer-at is 1893488400: send milliseconds.
}
