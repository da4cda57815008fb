package console

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/api"
)

// kept has the parts of a timer for which the form has no field. They pass through the form in a hidden one. A browser
// sends them, so they are limited like a body of the API.
type kept struct {
	Headers   api.Headers `json:"headers,omitempty"` // that are no line of text
	KeyNull   bool        `json:"keyNull,omitempty"`
	KeyBase64 []byte      `json:"keyBase64,omitempty"`
}

// maxKept limits kept as text, in bytes. The headers of a timer have up to 64 KiB, and up to eight times that as JSON
// in base64.
const maxKept = 1 << 20

func (k *kept) encode() string {
	if len(k.Headers) == 0 && !k.KeyNull && k.KeyBase64 == nil {
		return ""
	}
	text, _ := json.Marshal(k) // strings, bytes and a bool can be encoded
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseKept(text string) (k kept, err error) {
	if text == "" {
		return k, nil
	}
	if len(text) > maxKept {
		return k, errors.New("the form is not whole, and too large: load the page again")
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		return k, errors.New("the form is not whole: load the page again")
	}
	return k, nil
}

// Keeps returns in words the parts of the timer that the form does not show.
func (f *form) Keeps() (all []string) {
	k, err := parseKept(f.Kept)
	if err != nil {
		return nil
	}
	for _, h := range k.Headers {
		all = append(all, "the header "+strconv.QuoteToASCII(h.Name))
	}
	switch {
	case k.KeyNull:
		all = append(all, "that its emission has no key")
	case k.KeyBase64 != nil:
		all = append(all, "the key of its emission, which is no text")
	}
	return all
}

// formOfTimer returns the form of a pending timer. If it is sent unchanged it schedules the same timer again: with the
// same next occurrence, and as many further ones as are left.
func formOfTimer(t *api.Timer) (f form) {
	f = form{Topic: t.Topic, ID: t.ID, Target: t.Target.Topic, MaxLate: t.MaxLate, As: asText, If: t.Source,
		Source: t.Source}
	at := t.Due.UTC().Format("2006-01-02T15:04:05.999Z07:00")
	if r := t.Recurrence; r != nil {
		f.Every, f.Cron, f.Zone, f.Jitter, f.CatchUp = r.Every, r.Cron, r.Zone, r.Jitter, r.CatchUp
		if r.Until != nil {
			f.Until = r.Until.UTC().Format(time.RFC3339Nano)
		}
		if r.Count > 0 {
			f.Count = strconv.FormatInt(max(1, r.Count-t.Occurrence+1), 10)
		}
		if r.Every != "" {
			f.At = at
		}
	} else {
		f.At = at
	}
	if t.Target.Partition != nil {
		f.TargetPartition = strconv.Itoa(int(*t.Target.Partition))
	}
	k := kept{KeyNull: t.Target.KeyNull, KeyBase64: t.Target.KeyBase64}
	switch key := t.Target.Key; {
	case key == nil || *key == t.ID:
	case hasControl(*key, ""):
		k.KeyBase64 = []byte(*key)
	default:
		f.TargetKey = *key
	}
	var lines []string
	for _, h := range t.Headers {
		if h.Value == nil || hasControl(h.Name+*h.Value, "") || strings.ContainsAny(h.Name, ":") ||
			strings.TrimSpace(h.Name) != h.Name {
			k.Headers = append(k.Headers, h)
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s", h.Name, *h.Value))
	}
	f.Headers, f.Kept = strings.Join(lines, "\n"), k.encode()
	if p := t.Payload; p != nil {
		f.Payload, f.As = inField(p.Text, p.Base64, p.Null, "\n\t")
	}
	return f
}
