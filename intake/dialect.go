package intake

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// Dialect is the language of another scheduler in which requests of a topic may be written. A record in a dialect is
// translated into our own headers and then validated like any request: limits, targets and reasons are the same. A
// record that our own headers cannot express is rejected.
//
// Our own headers work alongside every dialect, so that producers can be moved one by one. A record that gives the
// same setting in both is rejected. A null value without headers of either cancels.
type Dialect string

// The dialects. Their files name the sources of their rules.
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

// translate returns rec with the dialect's headers translated into our own, or rec itself if it has none of them. It
// does not change rec; the result shares its memory. The size of the result is bounded by the limits, not by rec: see
// allowance.
func (d Dialect) translate(rec *kgo.Record, limits *Limits) (*kgo.Record, *timer.Refusal) {
	switch d {
	case ETF1:
		return fromETF1(rec, limits)
	case Sky:
		return fromSky(rec, limits, decodeSkyAvro)
	case SkyJSON:
		return fromSky(rec, limits, decodeSkyJSON)
	case RabbitMQ:
		return fromRabbitMQ(rec, limits)
	case NATS:
		return fromNATS(rec, limits)
	case Pulsar:
		return fromPulsar(rec, limits)
	}
	return rec, nil
}

// stamp names a header that translation adds and whose value is another one for each record; "" if there is none.
func (d Dialect) stamp() string {
	if d == ETF1 {
		return etf1Timestamp
	}
	return ""
}

// foreign holds a record's headers, with those of a dialect apart from the others.
type foreign struct {
	said   map[string][]byte  // values of the dialect's headers, by name
	others []kgo.RecordHeader // the others, in order, without those to drop
}

// has reports whether a header of the dialect is given; its value may be null.
func (f *foreign) has(name string) bool {
	_, ok := f.said[name]
	return ok
}

// vocabulary holds the headers of a dialect.
type vocabulary struct {
	known  []string // headers that are read: each at most once, in its exact case, as text
	binary string   // the one known header that is not text
	drop   []string // headers that the scheduler adds to its emissions; they are not passed on
	prefix string   // any other header with this prefix is misspelt; "": none is
}

// allowance counts the headers that a translation is about to build, so that it stops where headers.read would reject
// them. A header may have two bytes in a record and has 40 in memory.
type allowance struct {
	limits       *Limits
	count, bytes int
}

const (
	// extraHeaders is the number of headers that read does not count: those of a trace's context.
	extraHeaders = 2
	// extraBytes is how many bytes translation may save, apart from leading zeros of numbers: names get shorter, and
	// the trace's context is not counted.
	extraBytes = 1<<10 + tracestateBytes
)

// take counts a header, and rejects the record if that is one more than the limits can allow.
func (a *allowance) take(h *kgo.RecordHeader) *timer.Refusal {
	count, bytes := a.limits.headers()
	a.count++
	a.bytes += len(h.Key) + len(h.Value)
	switch {
	case a.count > count+extraHeaders:
		return tooManyHeaders(count)
	case a.bytes > bytes+extraBytes:
		return headersTooLarge(bytes)
	}
	return nil
}

// parse separates a dialect's headers from the others.
func (v *vocabulary) parse(list []kgo.RecordHeader, limits *Limits) (f foreign, refusal *timer.Refusal) {
	count, _ := limits.headers()
	f.said = make(map[string][]byte)
	f.others = make([]kgo.RecordHeader, 0, min(len(list), count+extraHeaders)+maxAdded)
	room := allowance{limits: limits}
	for _, h := range list {
		if named(h.Key, v.drop) != "" || classify(h.Key) == ownHeader { // the latter are dropped anyway
			continue
		}
		if refusal := room.take(&h); refusal != nil {
			return f, refusal
		}
		name := named(h.Key, v.known)
		switch {
		case name == "" && v.prefix != "" && begins(h.Key, v.prefix):
			return f, Refuse(waterclock.ReasonUnknownHeader,
				"the header %s is none of this dialect: correct its spelling, or rename it if it is your own.",
				quote(h.Key))
		case name == "":
			f.others = append(f.others, h)
			continue
		case name != h.Key:
			return f, Refuse(waterclock.ReasonHeaderCase, "the header %s has the wrong case: write %s.",
				quote(h.Key), name)
		case f.has(name):
			return f, Refuse(waterclock.ReasonDuplicateHeader, "the header %s is given twice: send it once.", name)
		case name != v.binary && !utf8.Valid(h.Value):
			return f, Refuse(waterclock.ReasonNotUTF8, "the value of %s is not UTF-8: send it as text.", name)
		}
		f.said[name] = h.Value
	}
	return f, nil
}

// maxAdded is the most headers that a dialect adds.
const maxAdded = 6

// named returns the name that equals key in any case, "" if there is none.
func named(key string, names []string) string {
	for _, n := range names {
		if strings.EqualFold(n, key) {
			return n
		}
	}
	return ""
}

// begins reports whether key begins with prefix, in any case.
func begins(key, prefix string) bool {
	return len(key) >= len(prefix) && strings.EqualFold(key[:len(prefix)], prefix)
}

// isOurs reports whether a header is one of our own, misspelt ones included.
func isOurs(key string) bool { return begins(key, waterclock.RequestPrefix) }

func speaksOurs(list []kgo.RecordHeader) bool {
	return slices.ContainsFunc(list, func(h kgo.RecordHeader) bool { return isOurs(h.Key) })
}

// decides reports whether one of our own headers decides what the request does: any header except those that name the
// target.
func decides(list []kgo.RecordHeader) bool {
	return slices.ContainsFunc(list, func(h kgo.RecordHeader) bool {
		return isOurs(h.Key) && !strings.HasPrefix(h.Key, "timer-target-")
	})
}

// gives reports whether one of our headers is among the others.
func (f *foreign) gives(ours ...string) bool {
	for i := range f.others {
		if slices.Contains(ours, f.others[i].Key) {
			return true
		}
	}
	return false
}

// say adds one of our headers. It rejects the record if the header is given already.
func (f *foreign) say(theirs, ours string, value []byte) *timer.Refusal {
	if f.gives(ours) {
		return Refuse(waterclock.ReasonConflictingHeaders,
			"%s comes together with %s, which says the same: send one of them.", theirs, ours)
	}
	f.others = append(f.others, kgo.RecordHeader{Key: ours, Value: value})
	return nil
}

// record returns rec with the headers in others.
func (f *foreign) record(rec *kgo.Record) *kgo.Record {
	out := *rec
	out.Headers = f.others
	return &out
}

// instantText writes Unix milliseconds for timer-at: as RFC 3339 if the number would be taken for seconds.
func instantText(ms int64) []byte {
	if ms < waterclock.MinUnixMilli {
		return time.UnixMilli(ms).UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z07:00")
	}
	return appendInt(nil, ms)
}
