package console_test

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/config"
)

// with runs an instance before an embedded broker, with settings that a test changes.
func with(t *testing.T, change func(*config.Config)) string {
	t.Helper()
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ClusterID("console"),
		kfake.SeedTopics(2, requests, target, longTarget), kfake.GroupMinSessionTimeout(time.Second))
	return serve(t, c.ListenAddrs(), change)
}

// call is one call as a browser makes it for its user.
func call(t *testing.T, method, to, token string, form url.Values, headers ...string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, to, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// What a caller may not do over the API it may not do here, nor see.
func TestRightsHoldForPages(t *testing.T) {
	tokens := map[string]string{}
	text := "callers:\n"
	for name, g := range map[string]access.Grant{
		"reader": {Role: access.Read, Topic: "*"},
		"writer": {Role: access.Write, Topic: "*"},
		"shop":   {Role: access.Write, Topic: requests, IDPrefix: "shop-"},
	} {
		tokens[name] = access.NewToken()
		entry, err := access.TokenEntry(name, tokens[name], g)
		if err != nil {
			t.Fatal(err)
		}
		text += string(entry)
	}
	users := filepath.Join(t.TempDir(), "users.yaml")
	if err := os.WriteFile(users, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := with(t, func(cfg *config.Config) { cfg.APIUsers = users })
	schedule := func(id string) url.Values {
		return url.Values{"topic": {requests}, "id": {id}, "after": {"1h"}, "target": {target}}
	}
	one := path("/timer", "topic", requests, "id", "shop-1")
	for _, c := range []struct {
		name, caller, method, path string
		form                       url.Values
		headers                    []string
		status                     int
		want                       string
	}{
		{"nobody", "", "GET", "/", nil, nil, 401, "unauthenticated"},
		{"nobody's style sheet", "", "GET", "/static/console.css", nil, nil, 401, "unauthenticated"},
		{"a writer schedules", "writer", "POST", "/schedule", schedule("shop-1"),
			[]string{"Sec-Fetch-Site", "same-origin"}, 303, ""},
		{"another site does not", "writer", "POST", "/schedule", schedule("csrf"),
			[]string{"Sec-Fetch-Site", "cross-site"}, 403, "another site"},
		{"a reader reads", "reader", "GET", one, nil, nil, 200, "shop-1"},
		{"a reader does not schedule", "reader", "POST", "/schedule", schedule("other"), nil, 403, "forbidden"},
		{"a reader does not cancel", "reader", "POST", one, url.Values{"do": {"cancel"}}, nil, 403, "forbidden"},
		{"its timer is still there", "reader", "GET", one, nil, nil, 200, "Cancel timer"},
		{"who has some IDs sees them", "shop", "GET", "/timers", nil, nil, 200, "shop-1"},
		{"and has a home", "shop", "GET", "/", nil, nil, 200, "What you may see"},
		{"who has some IDs finds them", "shop", "GET", path("/timers", "topic", requests, "q", "shop-"), nil, nil,
			200, "shop-1"},
		{"and no others", "shop", "GET", path("/timers", "topic", requests, "q", "s"), nil, nil, 403, "forbidden"},
		{"nor one of them", "shop", "GET", path("/timer", "topic", requests, "id", "other"), nil, nil, 403,
			"forbidden"},
		{"nor the cluster", "shop", "GET", "/cluster", nil, nil, 403, "forbidden"},
		{"nor dead letters", "shop", "GET", path("/dead-letters", "topic", requests), nil, nil, 403, "forbidden"},
		{"it cancels its own", "shop", "POST", one, url.Values{"do": {"cancel"}}, nil, 303, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body := call(t, c.method, at+c.path, tokens[c.caller], c.form, c.headers...)
			if status != c.status || !strings.Contains(body, c.want) {
				t.Errorf("%s %s: %d, want %d with %q:\n%s", c.method, c.path, status, c.status, c.want, body)
			}
		})
	}
}

// Without the console the API is as it was, and has nothing at the console's paths.
func TestWithoutConsole(t *testing.T) {
	at := with(t, func(cfg *config.Config) { cfg.Console = false })
	for _, p := range []string{"/", "/timers", "/static/console.js"} {
		if status, body := call(t, http.MethodGet, at+p, "", nil); status != http.StatusNotFound ||
			!strings.Contains(body, "openapi.json") {
			t.Errorf("%s: %d %s", p, status, body)
		}
	}
	if status, _ := call(t, http.MethodGet, at+"/v1/topics", "", nil); status != http.StatusOK {
		t.Errorf("/v1/topics: %d", status)
	}
}
