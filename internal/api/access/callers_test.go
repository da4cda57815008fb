package access

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestCallersFile(t *testing.T) {
	c, err := parseCallers([]byte(usersFile()))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.byName) != 3 || len(c.byToken) != 2 || len(c.byCertificate) != 1 || c.byName["shop"].password == nil {
		t.Errorf("read %+v", c)
	}
	c, err = parseCallers([]byte(`callers: {a: {tokens: ['` + tokenLine("a") +
		`'], grants: [{role: admin, calendar: 'de-*'}]}}`))
	if err != nil || !c.byName["a"].caller.grants[0].Covers(CalendarTopic("de-x")) {
		t.Errorf("%v: a grant to calendars: %+v", err, c)
	}
	if (Grant{Topic: "c*"}).Covers(CalendarTopic("de-x")) || !(Grant{Topic: "*"}).Covers(CalendarTopic("de-x")) {
		t.Error("of grants to topics, only that to all includes calendars")
	}
	// Scalars are kept as they are written.
	c, err = parseCallers([]byte("\ufeff" + `callers: {a: {tokens: ['` + tokenLine("a") +
		`'], grants: [{role: read, topic: 017, id-prefix: 0x10}, {role: read, topic: true, id-prefix: 1.50}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if g := c.byName["a"].caller.grants; g[0] != (Grant{Read, "017", "0x10"}) || g[1] != (Grant{Read, "true", "1.50"}) {
		t.Errorf("grants %+v", g)
	}
}

func TestBrokenCallersFiles(t *testing.T) {
	const good = `grants: [{role: read, topic: '*'}]`
	tok := "tokens: ['" + tokenLine("a") + "']"
	bcrypted := passwordHash()
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "names no caller"},
		{"no YAML", "callers: [", "line 1: callers needs a ] at the end of its list"},
		{"a list", "- a", "line 1: it needs keys with values, as in KEY: VALUE, not a list"},
		{"a number for a caller", "callers:\n  a: 3",
			"line 2: a needs keys with values, as in KEY: VALUE, not a number"},
		{"a text for a list", "callers:\n  a:\n    tokens: x", "line 3: tokens needs a list, not a text"},
		{"a list for a text", "callers:\n  a:\n    password: [x]", "line 3: password needs a single value"},
		{"UTF-16", "\xfe\xff\x00a", "it needs text in UTF-8, not in UTF-16"},
		{"a tag alone, at which the library panics", "callers:\n  a:\n    tokens: !x\n  b: {}\n",
			"not well-formed YAML"},
		{"another key", "users: {}", "line 1: users needs to be a known key"},
		{"another key of a caller", `callers: {a: {` + tok + `, ` + good + `, roles: [x]}}`, "roles"},
		{"another key of a grant", `callers: {a: {` + tok + `, grants: [{role: read, topic: a, prefix: b}]}}`,
			"prefix"},
		{"a caller twice", "callers:\n  a: {" + tok + ", " + good + "}\n  a: {" + tok + ", " + good + "}\n", "a"},
		{"a name with spaces", `callers: {a b: {` + tok + `, ` + good + `}}`, "name of a caller"},
		{"the name of open ones", `callers: {anonymous: {` + tok + `, ` + good + `}}`, "not to be anonymous"},
		{"a line break in a name", `callers: {"a\nb": {` + tok + `, ` + good + `}}`, "name of a caller"},
		{"nothing to show", `callers: {a: {` + good + `}}`, "needs password, tokens, certificates, users or groups"},
		{"no right", `callers: {a: {` + tok + `}}`, "1 to 100 grants"},
		{"an unknown role", `callers: {a: {` + tok + `, grants: [{role: root, topic: a}]}}`,
			"needs one of read, write, admin"},
		{"no role", `callers: {a: {` + tok + `, grants: [{topic: a}]}}`, "role is"},
		{"no topic", `callers: {a: {` + tok + `, grants: [{role: read}]}}`, "topic is"},
		{"a glob", `callers: {a: {` + tok + `, grants: [{role: read, topic: 'a*b'}]}}`, "topic is"},
		{"two stars", `callers: {a: {` + tok + `, grants: [{role: read, topic: '**'}]}}`, "topic is"},
		{"a star without quotes", `callers: {a: {` + tok + `, grants: [{role: read, topic: *}]}}`, "needs quotes: '*'"},
		{"a calendar and a topic", `callers: {a: {` + tok + `, grants: [{role: read, topic: a, calendar: b}]}}`,
			"one of calendar and topic"},
		{"a role that calendars lack", `callers: {a: {` + tok + `, grants: [{role: write, calendar: b}]}}`,
			"needs read or admin for calendars"},
		{"a glob of calendars", `callers: {a: {` + tok + `, grants: [{role: read, calendar: 'a*b'}]}}`, "calendar is"},
		{"a topic with a colon", `callers: {a: {` + tok + `, grants: [{role: read, topic: 'calendar:x'}]}}`, "topic is"},
		{"a long prefix", `callers: {a: {` + tok + `, grants: [{role: read, topic: a, id-prefix: ` + strings.Repeat(
			"x", 513) + `}]}}`, "id-prefix has 513"},
		{"a list as prefix", `callers: {a: {` + tok + `, grants: [{role: read, topic: a, id-prefix: [a]}]}}`, ""},
		{"a password in the clear", `callers: {a: {password: hunter2, ` + good + `}}`, "bcrypt hash"},
		{"a cheap hash", `callers: {a: {password: '` + strings.Replace(bcrypted, "$10$", "$04$", 1) + `', ` + good +
			`}}`, "cost 10 to 14"},
		{"a dear hash", `callers: {a: {password: '` + strings.Replace(bcrypted, "$10$", "$31$", 1) + `', ` + good +
			`}}`, "cost 10 to 14"},
		{"half a hash", `callers: {a: {password: '` + bcrypted[:40] + `', ` + good + `}}`, "bcrypt hash"},
		{"a token itself", `callers: {a: {tokens: [` + tokenOf("a") + `], ` + good + `}}`, "never the token itself"},
		{"half a token's hash", `callers: {a: {tokens: ['sha256:00'], ` + good + `}}`, "64 hexadecimal digits"},
		{"a token of two", `callers: {a: {` + tok + `, ` + good + `}, b: {` + tok + `, ` + good + `}}`,
			"is that of a too"},
		{"a certificate of two", `callers: {a: {certificates: ['dns:x'], ` + good + `}, b: {certificates: ['dns:x'], ` +
			good + `}}`, "is that of a too"},
		{"a certificate of no kind", `callers: {a: {certificates: ['x'], ` + good + `}}`, "subject:CN="},
		{"a certificate of nothing", `callers: {a: {certificates: ['dns:'], ` + good + `}}`, "subject:CN="},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseCallers([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("err = %v, want %q", err, c.want)
			}
			for _, secret := range []string{"hunter2", tokenOf("a"), bcrypted[10:], bcrypted[:40]} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("it shows a secret: %v", err)
				}
			}
		})
	}
}

// All problems of a file are reported at once.
func TestAllThatIsWrong(t *testing.T) {
	_, err := parseCallers([]byte(`callers: {a: {password: x}, b: {tokens: [y]}}`))
	if err == nil || !strings.Contains(err.Error(), "callers.a") || !strings.Contains(err.Error(), "callers.b") {
		t.Errorf("err = %v", err)
	}
}

func TestEntriesAreTaken(t *testing.T) {
	for _, g := range []Grant{{Read, "*", ""}, {Write, "orders*", "007"}, {Admin, "true", ": '\"\n#\t\u202e"}} {
		p, err := PasswordEntry("shop", []byte(password), g)
		if err != nil {
			t.Fatal(err)
		}
		k, err := TokenEntry("billing", NewToken(), g)
		if err != nil {
			t.Fatal(err)
		}
		c, err := parseCallers([]byte("callers:\n" + string(p) + string(k)))
		if err != nil {
			t.Fatalf("%v\n%s%s", err, p, k)
		}
		for _, a := range c.byName {
			if a.caller.grants[0] != g {
				t.Errorf("grant %q, want %q", a.caller.grants[0], g)
			}
		}
	}
	if _, err := PasswordEntry("shop", []byte(strings.Repeat("x", 73)), Grant{Read, "*", ""}); err == nil {
		t.Error("a password of 73 bytes")
	}
	if _, err := TokenEntry("shop", "short", Grant{Read, "*", ""}); err == nil {
		t.Error("a short token")
	}
	if a, b := NewToken(), NewToken(); a == b || len(a) != len(tokenPrefix)+43 {
		t.Errorf("tokens %s, %s", a, b)
	}
}

func TestKeysFile(t *testing.T) {
	key := strings.Repeat("k", 32)
	for text, want := range map[string]int{
		key: 1, key + "\n": 1, "\n " + key + "\r\n\n": 1, key + "\n" + key + "2\n": 2,
		"": 0, "\n": 0, key[:31]: 0, key + "\nshort": 0, key + "\n" + key + "\n" + key: 0,
	} {
		keys, err := parseKeys([]byte(text))
		if len(keys) != want && err == nil || (err == nil) != (want > 0) {
			t.Errorf("%q: %d keys, %v; want %d", text, len(keys), err, want)
		}
	}
}

// A file that is too large is refused before it is parsed.
func TestLargeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	if err := os.WriteFile(path, make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckCallers(path); err == nil || !strings.Contains(err.Error(), strconv.Itoa(maxFileBytes)) {
		t.Errorf("err = %v", err)
	}
}

// FuzzParseCallers: no file makes the parser panic, and accepted files keep the limits.
func FuzzParseCallers(f *testing.F) {
	f.Add([]byte(usersFile()))
	f.Add([]byte("callers: &a {x: *a}"))
	f.Add([]byte("callers: {a: {tokens: ['" + tokenLine("a") + "'], grants: [{role: read, topic: 017}]}}"))
	f.Add([]byte("callers:\n  ? [a]\n  : {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCallers(data)
		if err != nil {
			return
		}
		for name, a := range c.byName {
			if CheckName(name) != nil || a.caller.Name != name || len(a.caller.grants) == 0 {
				t.Errorf("caller %q: %+v", name, a.caller)
			}
			for _, g := range a.caller.grants {
				if g.Role < Read || g.Role > Admin || g.check() != nil {
					t.Errorf("grant %+v", g)
				}
			}
		}
	})
}
