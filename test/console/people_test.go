package console_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/waterclock/waterclock/internal/node/config"
)

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
	users := filepath.Join(t.TempDir(), "users.yaml")
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
	if err := os.WriteFile(users, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := with(t, func(cfg *config.Config) { cfg.APIUsers = users })
	one := path("/timer", "topic", requests, "id", "shop-1")
	form := url.Values{"topic": {requests}, "id": {"shop-1"}, "after": {"1h"}, "target": {target}}
	for _, c := range []struct {
		name, token, method, path string
		form                      url.Values
		status                    int
		want                      string
	}{
		{"one of the team schedules", token("alice", "shop-team"), "POST", "/schedule", form, 303, ""},
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
	} {
		t.Run(c.name, func(t *testing.T) {
			if status, body := call(t, c.method, at+c.path, c.token, c.form); status != c.status ||
				!strings.Contains(body, c.want) {
				t.Errorf("%s %s: %d, want %d with %q:\n%s", c.method, c.path, status, c.status, c.want, body)
			}
		})
	}
}
