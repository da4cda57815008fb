package api

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// losslessCases are values of JSON, with a part of the error that each has; "": it is taken as it is.
var losslessCases = []struct{ name, json, want string }{
	{"texts", `{"id":"a","value":"b","target":{"topic":"t","key":"k"},"headers":[{"name":"n","value":"v"}]}`, ""},
	{"any character", `{"value":"\u0000\ud83d\ude00\uFFFD � 😀 \\ud800 \"\ud83d\ude00\""}`, ""},
	{"base64", `{"idBase64":"/w==","valueBase64":"/w=="}`, ""},
	{"not UTF-8", "{\"value\":\"ab\xff\"}", "value is not UTF-8 at byte 2: give its bytes in base64, as valueBase64"},
	{"not UTF-8, ID", "{\"id\":\"\xc3\"}", "id is not UTF-8 at byte 0: give its bytes in base64, as idBase64"},
	{"overlong", "{\"id\":\"\xc0\x80\"}", "id is not UTF-8"},
	{"a surrogate in UTF-8", "{\"id\":\"\xed\xa0\x80\"}", "id is not UTF-8"},
	{"not UTF-8, key", "{\"target\":{\"topic\":\"t\",\"key\":\"\xff\"}}",
		"target.key is not UTF-8 at byte 0: give its bytes in base64, as keyBase64"},
	{"not UTF-8, header", "{\"headers\":[{\"name\":\"a\"},{\"name\":\"n\",\"value\":\"\xff\"}]}",
		"headers[1].value is not UTF-8 at byte 0: give its bytes in base64, as valueBase64"},
	{"not UTF-8, name of a header", "{\"headers\":[{\"name\":\"\xff\"}]}",
		"headers[0].name is not UTF-8 at byte 0: correct it"},
	{"not UTF-8, as shown", "{\"payload\":{\"text\":\"\xff\"}}",
		"payload.text is not UTF-8 at byte 0: give its bytes in base64, as base64"},
	{"not UTF-8, time", "{\"at\":\"\xff\"}", "at is not UTF-8"},
	{"half a pair", `{"id":"a\ud800"}`,
		`id has \ud800, which is half of a character: give its bytes in base64, as idBase64`},
	{"the other half", `{"id":"\udc00"}`, `id has \udc00`},
	{"two first halves", `{"value":"\ud83d\ud83d\ude00"}`, `value has \ud83d`},
	{"half a pair and an escape", `{"value":"\ud83d\n"}`, `value has \ud83d`},
	{"half a pair after a backslash", `{"value":"\\\ud83d"}`, `value has \ud83d`},
	{"a field twice", `{"id":"a","value":"x","id":"b"}`, "id is given twice"},
	{"a field twice, in another case", `{"id":"a","ID":"b"}`, "ID is given twice"},
	{"a field twice, escaped", `{"id":"a","\u0069d":"b"}`, "id is given twice"},
	{"a field twice, once null", `{"at":null,"at":"1"}`, "at is given twice"},
	{"a field twice, below", `{"target":{"key":"a","key":"b"}}`, "target.key is given twice"},
	{"a field twice, in a list", `{"headers":[{"name":"a","name":"b"}]}`, "headers[0].name is given twice"},
	{"a field in each of two", `{"headers":[{"name":"a"},{"name":"b"}],"target":{"topic":"t"},"topic":"x"}`, ""},
	{"null payload", `{"value":null}`, "value is null: give valueNull: true for Kafka's null, or leave it out"},
	{"null payload in base64", `{"valueBase64": null ,"id":"a"}`, "valueBase64 is null"},
	{"null payload, and not Kafka's", `{"value":null,"valueBase64":null,"valueNull":false}`, ""},
	{"null key, and not Kafka's", `{"target":{"topic":"t","key":null,"keyNull":false}}`, ""},
	{"null payload, and null about it", `{"value":null,"valueNull":null}`, "value is null"},
	{"null payload that is said", `{"value":null,"valueBase64":null,"valueNull":true}`, ""},
	{"the other way", `{"value":null,"valueBase64":"eA=="}`, ""},
	{"the other way, as shown", `{"value":null,"payload":{"text":"x","base64":null}}`, ""},
	{"null payload, as shown", `{"payload":{"bytes":0,"text":null}}`,
		"payload.text is null: give null: true for Kafka's null"},
	{"null key", `{"target":{"topic":"t","key":null}}`, "target.key is null: give keyNull: true for a null key"},
	{"null header", `{"headers":[{"name":"n","value":null}]}`, "headers[0].value is null: give valueNull: true"},
	{"nothing", `{"id":null,"at":null,"headers":null,"target":null,"count":0}`, ""},
	{"white space", " {\n\t\"id\" :\r \"\xff\" } ", "id is not UTF-8"},
	{"empty", `{"id":"","headers":[],"target":{}}`, ""},
}

// A value that decoding would change is an error that names the field.
func TestLossless(t *testing.T) {
	for _, c := range losslessCases {
		t.Run(c.name, func(t *testing.T) {
			err := lossless([]byte(c.json))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: got %v, want %q", c.json, err, c.want)
			}
			if !json.Valid([]byte(c.json)) {
				t.Error("it is not JSON")
			}
		})
	}
}

// A media type may name the charset of JSON.
func TestCharset(t *testing.T) {
	for kind, want := range map[string]bool{
		"": true, "application/json": true, "application/json; charset=utf-8": true,
		`application/json; charset="UTF-8"`: true,
		"application/json;charset=utf8":     true, "application/json; charset=us-ascii": true,
		"application/json; indent=2":           true,
		"application/json; charset=iso-8859-1": false, "application/json; charset=utf-16": false,
		"application/json; charset": false,
	} {
		if err := isUTF8(kind); (err == nil) != want {
			t.Errorf("%q: %v", kind, err)
		}
	}
}

func FuzzLossless(f *testing.F) {
	for _, c := range losslessCases {
		f.Add([]byte(c.json))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var n NewTimer
		if strict(b).Decode(&n) != nil || !json.Valid(b) {
			return // it is checked only then
		}
		err := lossless(b)
		text, _ := json.Marshal(&n)
		switch replaced := strings.Contains(string(text), "\ufffd") || strings.Contains(string(text), `\ufffd`); {
		case err == nil && !utf8.Valid(b):
			t.Errorf("%q is taken", b)
		case err == nil && replaced && !strings.Contains(string(b),
			"\ufffd") && !strings.Contains(strings.ToLower(string(b)), `\ufffd`):
			t.Errorf("%q became %s", b, text)
		}
	})
}
