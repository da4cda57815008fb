package console

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// right is a call of somebody, and what comes of it.
type right struct {
	name, token, method, path string
	form                      url.Values
	status                    int
	want                      string
}

// holds makes the calls, as browsers make them for their users.
func (s *setup) holds(rights ...right) {
	for _, r := range rights {
		headers := []string{"Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded"}
		if r.token != "" {
			headers = append(headers, "Authorization", "Bearer "+r.token)
		}
		got := s.Call(r.method, r.path, r.form.Encode(), headers...)
		if got.Status != r.status || !strings.Contains(got.Text, r.want) {
			s.t.Errorf("%s: %s %s: %d, want %d with %q:\n%s", r.name, r.method, r.path, got.Status, r.status, r.want,
				got.Text)
		}
	}
}

func schedule(id string) url.Values {
	return url.Values{"topic": {requests}, "id": {id}, "after": {"1h"}, "target": {target}}
}

// one is the page of a timer.
var one = path("/timer", "topic", requests, "id", "shop-1")

// What a caller may not do over the API it may not do here, nor see.
func TestRightsHoldForPages(t *testing.T) {
	tokens, users := rig.Users(t, map[string]access.Grant{
		"reader": {Role: access.Read, Topic: "*"},
		"writer": {Role: access.Write, Topic: "*"},
		"shop":   {Role: access.Write, Topic: requests, IDPrefix: "shop-"},
	})
	reader, writer, shop := tokens["reader"], tokens["writer"], tokens["shop"]
	with(t, func(cfg *config.Config) { cfg.APIUsers = users }).holds([]right{
		{"nobody", "", "GET", "/", nil, 401, "unauthenticated"},
		{"nobody's style sheet", "", "GET", "/static/console.css", nil, 401, "unauthenticated"},
		{"a writer schedules", writer, "POST", "/schedule", schedule("shop-1"), 303, ""},
		{"a reader reads", reader, "GET", one, nil, 200, "shop-1"},
		{"a reader does not schedule", reader, "POST", "/schedule", schedule("other"), 403, "forbidden"},
		{"a reader does not snooze", reader, "POST", one, url.Values{"do": {"move"}, "source": {"timers/0/0"}, "due": {"5"},
			"by": {"1h"}}, 403, "forbidden"},
		{"nor move all", reader, "POST", path("/bulk", "topic", requests, "do", "move", "by", "1h"), url.Values{}, 403,
			"forbidden"},
		{"nor does a writer", writer, "POST", path("/bulk", "topic", requests, "do", "move", "by", "1h"), url.Values{}, 403,
			"forbidden"},
		{"a reader does not cancel", reader, "POST", one, url.Values{"do": {"cancel"}}, 403, "forbidden"},
		{"its timer is still there", reader, "GET", one, nil, 200, "shop-1"},
		{"who has some IDs sees them", shop, "GET", "/timers", nil, 200, "shop-1"},
		{"and has a home", shop, "GET", "/", nil, 200, "What you may see"},
		{"who has some IDs finds them", shop, "GET", path("/timers", "topic", requests, "q", "shop-"), nil, 200,
			"shop-1"},
		{"and no others", shop, "GET", path("/timers", "topic", requests, "q", "s"), nil, 403, "forbidden"},
		{"nor one of them", shop, "GET", path("/timer", "topic", requests, "id", "other"), nil, 403, "forbidden"},
		{"nor the cluster", shop, "GET", "/cluster", nil, 403, "forbidden"},
		{"nor dead letters", shop, "GET", path("/dead-letters", "topic", requests), nil, 403, "forbidden"},
		{"it cancels its own", shop, "POST", one, url.Values{"do": {"cancel"}}, 303, ""},
	}...)
}

// A tenant's people reach console and API by name, with tokens of an issuer: what they may do is
// what the file says of them and of their groups.
func TestPeopleInTheConsole(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var issuer *httptest.Server
	issuer = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/keys") {
			fmt.Fprintf(w, `{"keys": [{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": "1", "x": %q}]}`, base64.RawURLEncoding.EncodeToString(public))
			return
		}
		fmt.Fprintf(w, `{"issuer": %q, "jwks_uri": %q}`, issuer.URL, issuer.URL+"/keys")
	}))
	t.Cleanup(issuer.Close)
	token := func(user string, groups ...string) string {
		signed := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
			"iss": issuer.URL, "aud": "waterclock", "exp": time.Now().Add(time.Hour).Unix(), "preferred_username": user,
			"roles": groups,
		})
		signed.Header["kid"] = "1"
		text, err := signed.SignedString(private)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := fmt.Sprintf(`
identity: {issuer: '%s', audience: waterclock, user-claim: preferred_username, groups-claim: roles}
callers:
  shop:
    groups: [shop-team]
    grants: [{role: write, topic: %s, id-prefix: shop-}]
  everybody:
    groups: [staff]
    grants: [{role: read, topic: '*'}]
  carol:
    users: [carol]
    grants: [{role: read, topic: %s, id-prefix: carol-}]
`, issuer.URL, requests, requests)
	users := rig.File(t, "users.yaml", text)
	with(t, func(cfg *config.Config) { cfg.APIUsers = users }).holds([]right{
		{"one of the team schedules", token("alice", "shop-team"), "POST", "/schedule", schedule("shop-1"), 303, ""},
		{"sees it", token("alice", "shop-team"), "GET", one, nil, 200, "shop-1"},
		{"and not the cluster", token("alice", "shop-team"), "GET", "/cluster", nil, 403, "forbidden"},
		{"who is of the staff too sees both", token("alice", "shop-team", "staff"), "GET", "/cluster", nil,
			200, "Cluster"},
		{"one of the staff does not cancel", token("bob", "staff"), "POST", one, url.Values{"do": {"cancel"}}, 403,
			"forbidden"},
		{"nor does one by name", token("carol"), "POST", one, url.Values{"do": {"cancel"}}, 403, "forbidden"},
		{"over the API it is the same", token("carol"), "GET", "/v1/topics/" + requests + "/timers/shop-1", nil, 403,
			"forbidden"},
		{"whom the file does not know", token("eve", "others"), "GET", "/", nil, 401, "belong to no caller"},
		{"one of the team cancels", token("dave", "shop-team"), "POST", one, url.Values{"do": {"cancel"}}, 303, ""},
	}...)
}

// Without the console the API is as it was, and has nothing at the console's paths.
func TestWithoutConsole(t *testing.T) {
	s := with(t, func(cfg *config.Config) { cfg.Console = false })
	for _, p := range []string{"/", "/timers", "/static/console.js"} {
		s.Get(p).Is(http.StatusNotFound, "").Has("openapi.json")
	}
	s.Get("/v1/topics").Is(http.StatusOK, "")
}
