package route

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// Instances of several versions work together, so the form of an answer stays as it is.
func TestFormOfAnswers(t *testing.T) {
	one := timerOf(1)
	one.Source = "timers/3/17"
	decoded, err := timer.Decode(one.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	one.Timer = decoded
	place := query.CursorOf(query.ByID, one)
	shown := `{"timer":"` + base64.StdEncoding.EncodeToString(one.AppendTo(nil)) +
		`","topic":"timers","partition":3,"source":"timers/3/17","state":"pending"}`
	for want, a := range map[string]Answer{
		`{"next":""}`:                       {},
		`{"timer":` + shown + `,"next":""}`: {Timer: one},
		`{"timers":[` + shown + `],"next":"` + place.String() +
			`"}`: {List: query.List{Timers: []*query.Timer{one}, Next: place}},
		`{"next":"","written":[{"offset":1,"decision":{"outcome":"rejected","reason":"r","detail":"d"}},{"offset":2,"decision":{"outcome":"paused","pending":` + shown + `}}]}`: {
			Written: []Written{{Offset: 1, Decision: &query.Decision{Outcome: "rejected", Reason: "r", Detail: "d"}},
				{Offset: 2, Decision: &query.Decision{Outcome: "paused", Pending: one}}},
		},
	} {
		text, err := json.Marshal(a)
		if err != nil || string(text) != want {
			t.Errorf("%s, %v, want %s", text, err, want)
		}
		var back Answer
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, a) {
			t.Errorf("%s is %+v, %v", text, back, err)
		}
	}
	var back Answer
	if err := json.NewDecoder(strings.NewReader(`{"timer":{"timer":"AA=="}}`)).Decode(&back); err == nil {
		t.Error("a timer that cannot be decoded")
	}
}
