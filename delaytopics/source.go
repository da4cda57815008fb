package delaytopics

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// Source names one record, that of a request mostly; as text it is
// "topic/partition/offset".
type Source = waterclock.Source

func sourceOf(rec *kgo.Record) Source {
	return Source{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset}
}
