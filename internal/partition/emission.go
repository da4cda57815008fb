package partition

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/timer"
)

// emission builds the record that fires t. Its timestamp is the owner's clock
// at this seal.
func (p *Partition) emission(t *timer.Timer, partition int32, now int64) *kgo.Record {
	r := &kgo.Record{
		Topic: t.Target.Topic, Partition: partition, Key: t.Target.Key, Value: t.Value,
		Timestamp: time.UnixMilli(now),
		Headers:   make([]kgo.RecordHeader, 0, len(t.Headers)+5),
	}
	for _, h := range t.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	occurrence := strconv.FormatInt(t.Occurrence, 10)
	r.Headers = append(r.Headers,
		kgo.RecordHeader{Key: waterclock.HeaderID, Value: t.ID},
		kgo.RecordHeader{Key: waterclock.HeaderDue, Value: strconv.AppendInt(nil, t.Due, 10)},
		kgo.RecordHeader{Key: waterclock.HeaderOccurrence, Value: []byte(occurrence)},
		kgo.RecordHeader{Key: waterclock.HeaderSource, Value: []byte(p.source(t.Offset).String())},
		kgo.RecordHeader{Key: waterclock.HeaderEvent, Value: p.event(t)},
	)
	return r
}

// event is unique for ever: a re-created topic has another UUID.
func (p *Partition) event(t *timer.Timer) []byte {
	b := base64.RawURLEncoding.AppendEncode(make([]byte, 0, 64), p.o.Topics.Request.ID[:])
	b = append(b, '.')
	b = strconv.AppendInt(b, int64(p.o.Partition), 10)
	b = append(b, '.')
	b = strconv.AppendInt(b, t.Offset, 10)
	b = append(b, '.')
	return strconv.AppendInt(b, t.Occurrence, 10)
}

// refusalOf words a target's verdict.
func refusalOf(err error, r *kgo.Record) *refusal {
	switch {
	case emitter.TooLarge(err):
		return &refusal{string(waterclock.ReasonTargetTooLarge), fmt.Sprintf("topic %s refuses a record of this size: raise its max.message.bytes or send less", r.Topic)}
	case emitter.NotAuthorized(err):
		return &refusal{string(waterclock.ReasonTargetNotAuthorized), fmt.Sprintf("the service may not write to topic %s: grant it WRITE", r.Topic)}
	case emitter.UnknownTopic(err):
		return &refusal{string(waterclock.ReasonTargetUnknown), fmt.Sprintf("topic %s did not exist when the timer fired: create it", r.Topic)}
	}
	return &refusal{string(waterclock.ReasonTargetRefused), fmt.Sprintf("topic %s refuses the record: %v", r.Topic, err)}
}

func noPartition(topic string, partition, n int32) *refusal {
	return &refusal{string(waterclock.ReasonTargetPartitionUnknown),
		fmt.Sprintf("topic %s had %d partitions when the timer fired, and no partition %d", topic, n, partition)}
}
