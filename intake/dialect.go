package intake

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// Dialect is the language of another scheduler in which requests of a topic may
// be written. What a record says in it is said again in our own headers, and
// then validated like any request: limits, targets and reasons are the same. What
// our own headers cannot say is refused.
//
// Our own headers are understood beside every dialect, so that producers can be
// moved one by one. A record that says the same in both is refused. A null value
// without headers of either cancels.
type Dialect string

// The dialects. Each one's file says where its rules come from.
const (
	Plain    Dialect = ""         // our own headers alone
	ETF1     Dialect = "etf1"     // kafka-message-scheduler of etf1
	Sky      Dialect = "sky"      // kafka-message-scheduler of sky-uk, values in Avro
	SkyJSON  Dialect = "sky-json" // the same, values in JSON
	RabbitMQ Dialect = "rabbitmq" // x-delay, of the delayed message exchange
	NATS     Dialect = "nats"     // Nats-Schedule, of JetStream
	Pulsar   Dialect = "pulsar"   // deliverAt, deliverAfterMs, deliverAfterSeconds
)

// Dialects lists every dialect but Plain.
func Dialects() []Dialect { return []Dialect{ETF1, Sky, SkyJSON, RabbitMQ, NATS, Pulsar} }

// translate returns a record that says in our own headers what rec says in the
// dialect: rec itself, which is never changed, if it says nothing in it. The
// result shares rec's memory.
func (d Dialect) translate(rec *kgo.Record) (*kgo.Record, *Refusal) {
	switch d {
	case ETF1:
		return fromETF1(rec)
	case Sky:
		return fromSky(rec, decodeSkyAvro)
	case SkyJSON:
		return fromSky(rec, decodeSkyJSON)
	case RabbitMQ:
		return fromRabbitMQ(rec)
	case NATS:
		return fromNATS(rec)
	case Pulsar:
		return fromPulsar(rec)
	}
	return rec, nil
}

// foreign is a record's headers, those of a dialect told from the others.
type foreign struct {
	said   map[string][]byte  // by name, what the dialect's headers say
	others []kgo.RecordHeader // all others, in order, without those to drop
}

// has reports whether a header is given, maybe with a null value.
func (f *foreign) has(name string) bool {
	_, ok := f.said[name]
	return ok
}

// vocabulary are the headers of a dialect.
type vocabulary struct {
	known  []string // what says something: each given once, spelt as it is, and text
	binary string   // the one of them that is not text
	drop   []string // what the scheduler adds to what it emits, and not passed on
	prefix string   // a header that begins so and is none of these is misspelt; "": none is
}

// parse tells a dialect's headers from the others.
func (v *vocabulary) parse(list []kgo.RecordHeader) (f foreign, refusal *Refusal) {
	f.said = make(map[string][]byte)
	f.others = make([]kgo.RecordHeader, 0, len(list)+maxAdded)
	for _, h := range list {
		if named(h.Key, v.drop) != "" {
			continue
		}
		name := named(h.Key, v.known)
		switch {
		case name == "" && v.prefix != "" && begins(h.Key, v.prefix):
			return f, refuse(waterclock.ReasonUnknownHeader,
				"the header %s is none of this dialect: correct its spelling, or rename it if it is your own.", quote(h.Key))
		case name == "":
			f.others = append(f.others, h)
			continue
		case name != h.Key:
			return f, refuse(waterclock.ReasonHeaderCase, "the header %s has the wrong case: write %s.", quote(h.Key), name)
		case f.has(name):
			return f, refuse(waterclock.ReasonDuplicateHeader, "the header %s is given twice: send it once.", name)
		case name != v.binary && !utf8.Valid(h.Value):
			return f, refuse(waterclock.ReasonNotUTF8, "the value of %s is not UTF-8: send it as text.", name)
		}
		f.said[name] = h.Value
	}
	return f, nil
}

// maxAdded is how many headers a dialect adds at most.
const maxAdded = 6

// named is the one of names that key is, whatever its case; "" if it is none.
func named(key string, names []string) string {
	for _, n := range names {
		if strings.EqualFold(n, key) {
			return n
		}
	}
	return ""
}

// begins reports whether key begins with prefix, whatever its case.
func begins(key, prefix string) bool {
	return len(key) >= len(prefix) && strings.EqualFold(key[:len(prefix)], prefix)
}

// isOurs reports whether a header speaks to us in our own language, be it
// misspelt.
func isOurs(key string) bool { return begins(key, waterclock.RequestPrefix) }

func speaksOurs(list []kgo.RecordHeader) bool {
	return slices.ContainsFunc(list, func(h kgo.RecordHeader) bool { return isOurs(h.Key) })
}

// decides reports whether one of our own headers says when, or that nothing is to
// be scheduled: anything of ours but where to.
func decides(list []kgo.RecordHeader) bool {
	return slices.ContainsFunc(list, func(h kgo.RecordHeader) bool {
		return isOurs(h.Key) && !strings.HasPrefix(h.Key, "timer-target-")
	})
}

// gives reports whether one of our headers is given beside the dialect's.
func (f *foreign) gives(ours ...string) bool {
	for i := range f.others {
		if slices.Contains(ours, f.others[i].Key) {
			return true
		}
	}
	return false
}

// say adds one of our headers, unless that is given too.
func (f *foreign) say(theirs, ours string, value []byte) *Refusal {
	if f.gives(ours) {
		return refuse(waterclock.ReasonConflictingHeaders,
			"%s comes together with %s, which says the same: send one of them.", theirs, ours)
	}
	f.others = append(f.others, kgo.RecordHeader{Key: ours, Value: value})
	return nil
}

// record is rec with other headers.
func (f *foreign) record(rec *kgo.Record) *kgo.Record {
	out := *rec
	out.Headers = f.others
	return &out
}

// instantText writes Unix milliseconds as timer-at takes them: numbers that would
// be taken for seconds as RFC 3339.
func instantText(ms int64) []byte {
	if ms < waterclock.MinUnixMilli {
		return time.UnixMilli(ms).UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z07:00")
	}
	return appendInt(nil, ms)
}
