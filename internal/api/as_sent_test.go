package api_test

import (
	"fmt"
	"strings"
	"testing"
)

// A call is taken as it was sent, or it is rejected and nothing is written: nothing is replaced, left out or
// decided silently.
func TestNothingIsRepairedSilently(t *testing.T) {
	in, f := faked(t)
	const list, letter = allTimers, allLetters + "/0/0/resend"
	target := `,"after":"1h","target":{"topic":"orders"}`
	asJSON := []string{"Content-Type", "application/json"}
	good := []string{in1h, "1h", toOrders, "orders"}
	with := func(headers ...string) []string { return append(append([]string{}, good...), headers...) }
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		says                     string
	}{
		{"payload", "PUT", path("a"), "{\"value\":\"\xff\"" + target + "}", asJSON, 400,
			"value is not UTF-8 at byte 0: give its bytes in base64, as valueBase64"},
		{"half a pair in a payload", "PUT", path("a"), `{"value":"\ud800"` + target + "}", asJSON, 400,
			"as valueBase64"},
		{"key", "PUT", path("a"), "{\"after\":\"1h\",\"target\":{\"topic\":\"orders\",\"key\":\"\xff\"}}", asJSON,
			400, "as keyBase64"},
		{"header", "PUT", path("a"), "{\"headers\":[{\"name\":\"n\",\"value\":\"\xff\"}]" + target + "}", asJSON, 400,
			"headers[0].value"},
		{"ID", "PUT", path("a"), "{\"id\":\"\xff\"" + target + "}", asJSON, 400, "as idBase64"},
		{"a field twice", "PUT", path("a"), `{"value":"1","value":"2"` + target + "}", asJSON, 400,
			"value is given twice"},
		{"null payload", "PUT", path("a"), `{"value":null` + target + "}", asJSON, 400, "give valueNull: true"},
		{"charset", "PUT", path("a"), `{"value":"1"` + target + "}", []string{"Content-Type",
			"application/json; charset=iso-8859-1"}, 415, "JSON is UTF-8"},
		{"charset that cannot be read", "PUT", path("a"), `{"value":"1"` + target + "}", []string{"Content-Type",
			"application/json; charset"}, 415, "Content-Type"},
		{"compressed payload", "PUT", path("a"), "\x1f\x8b\x08", with("Content-Encoding", "gzip"), 415,
			"none is decoded"},
		{"compressed JSON", "PUT", path("a"), "\x1f\x8b\x08", []string{"Content-Type", "application/json",
			"Content-Encoding", "gzip"}, 415, "none is decoded"},
		{"two types", "PUT", path("a"), "x", with("Content-Type", "text/plain", "Content-Type", "application/json"),
			400, "Content-Type is given 2 times"},
		{"IDs of a list", "POST", list,
			"{\"timers\":[{\"id\":\"a\xff\"" + target + "},{\"id\":\"a\xfe\"" + target + "}]}", asJSON, 400,
			"body.timers[1]: id is not UTF-8"},
		{"half a pair in a list", "POST", list, `{"timers":[{"id":"\udfff"` + target + "}]}", asJSON, 400,
			"body.timers[0]: id has"},
		{"a field twice in a list", "POST", list, `{"timers":[{"id":"a","id":"b"` + target + "}]}", asJSON, 400,
			"body.timers[0]: id is given twice"},
		{"two lists", "POST", list, `{"timers":[{"id":"a"` + target + `}],"timers":[]}`, asJSON, 400, "body"},
		{"null payload in a list", "POST", list, `{"timers":[{"id":"a","value":null` + target + "}]}", asJSON, 400,
			"value is null"},
		{"charset of a list", "POST", list, `{"timers":[]}`, []string{"Content-Type",
			"application/json; charset=utf-16"}, 415, "JSON is UTF-8"},
		{"compressed list", "POST", list, "\x1f\x8b\x08", append([]string{"Content-Encoding", "gzip"}, asJSON...),
			415, "none is decoded"},
		{"key of a list twice", "POST", list, `{"timers":[{` + target[1:] + "}]}", append([]string{"Idempotency-Key",
			"a", "Idempotency-Key", "b"}, asJSON...), 400, "Idempotency-Key is given 2 times"},
		{"correction", "POST", letter, "{\"value\":\"\xff\"}", asJSON, 400, "as valueBase64"},
		{"null correction", "POST", letter, `{"value":null}`, asJSON, 400, "give valueNull: true"},
		{"headers of a correction twice", "POST", letter, `{"headers":[],"headers":[]}`, asJSON, 400,
			"headers is given twice"},
		{"charset of a correction", "POST", letter, `{"value":"x"}`, []string{"Content-Type",
			"application/json; charset=latin1"}, 415, "JSON is UTF-8"},
		{"a parameter twice", "PUT", path("a") + "?wait=decided&wait=written", "x", good, 400, "given 2 times"},
		{"a filter of which a part cannot be read", "POST", list + "/cancel?state=paused&prefix=%zz", "", nil, 400,
			"the parameters cannot be read"},
		{"a filter with a semicolon", "POST", list + "/cancel?state=paused&prefix=a;b", "", nil, 400, "%3B"},
		{"a filter twice", "POST", list + "/cancel?prefix=a&prefix=b", "", nil, 400, "given 2 times"},
		{"a header of a request", "PUT", path("a"), "x", []string{in1h, "1h", toOrders, "orders\xff"}, 400,
			"not UTF-8"},
		{"a time twice", "PUT", path("a"), "x", with(in1h, "2h"), 400, "given twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := in.Call(c.method, c.path, c.body, c.headers...).Is(c.status, "")
			if detail, _ := got.Body["detail"].(string); !strings.Contains(detail, c.says) || strings.Contains(detail,
				"\ufffd") {
				t.Errorf("got %s, want %q", got.Text, c.says)
			}
		})
	}
	if n := f.written(); n != 0 {
		t.Errorf("%d requests are in the log", n)
	}
}

// Bytes that are not UTF-8 stay as they are where bytes can be given: in a path, in the payload, in headers of HTTP, in
// base64, and in a filter. Two IDs stay two.
func TestBytesStayAsTheyAre(t *testing.T) {
	in, f := faked(t)
	good := []string{in1h, "1h", toOrders, "orders"}
	in.Call("PUT", path("%ff"), "\xff", append([]string{"timer-target-key", "k\xff", "waterclock-pass", "n=\xff"},
		good...)...).Is(201, "scheduled")
	in.Call("PUT", path("%fe"), "\x1f\x8b", append([]string{"Content-Encoding", "identity", "Content-Type",
		"text/plain; charset=iso-8859-1"}, good...)...).Is(201, "scheduled")
	in.Call("PUT", path("%ef%bf%bd"), "\ufffd", good...).Is(201, "scheduled")
	post := in.Call("POST", allTimers,
		`{"timers":[{"idBase64":"/Q==","valueBase64":"/w==","after":"1h","target":{"topic":"orders","keyBase64":"/w=="}}]}`,
		"Content-Type", "application/json; charset=UTF-8").Is(200, "")
	if !strings.Contains(post.Text, `"idBase64":"/Q=="`) {
		t.Errorf("the result does not name the ID: %s", post.Text)
	}
	var all []string
	for _, q := range f.all() {
		all = append(all, fmt.Sprintf("%q=%q key %q headers %d", q.ID, q.Value, q.Target.Key, len(q.Headers)))
	}
	for _, want := range []string{
		`"\xff"="\xff" key "k\xff" headers 1`, `"\xfe"="\x1f\x8b" key "\xfe" headers 0`, `"�"="�" key "�" headers 0`,
		`"\xfd"="\xff" key "\xff" headers 0`,
	} {
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("%s lacks %s", all, want)
		}
	}
	for prefix, want := range map[string]float64{"%ff": 1, "%fe": 1, "%ef%bf%bd": 1, "%fc": 0, "": 4} {
		got := in.Get(allTimers+"/count?prefix="+prefix).Is(200, "")
		if got.Body["count"] != want {
			t.Errorf("prefix %s: %s, want %v", prefix, got.Text, want)
		}
	}
	// Kafka's null is said, not meant.
	in.Call("PUT", path("typed"), `{"value":null,"valueBase64":null,"valueNull":false,"after":"1h",`+
		`"target":{"topic":"orders","key":null,"keyNull":false}}`,
		"Content-Type", "application/json").Is(201, "scheduled")
	if a := in.Get(path("typed")).Is(200, ""); !strings.Contains(a.Text, `"payload":{"bytes":0,"text":""}`) {
		t.Error(a.Text) // empty and not Kafka's null, and the key is the ID
	}
	in.Call("PUT", path("null"), `{"valueNull":true,"after":"1h","target":{"topic":"orders","keyNull":true}}`,
		"Content-Type", "application/json").Is(201, "scheduled")
	got := in.Get(path("null")).Is(200, "")
	if !strings.Contains(got.Text, `"payload":{"bytes":0,"null":true}`) || !strings.Contains(got.Text,
		`"keyNull":true`) {
		t.Error(got.Text)
	}
	in.Call("PUT", path("null"), got.Text, "Content-Type", "application/json").Is(200, "replaced")
}
