package access

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"

	"github.com/waterclock/waterclock/internal/kit/loopback"
)

// Limits of fetching an issuer's keys.
const (
	keysFresh    = 5 * time.Minute  // after that they are fetched again, while the old ones stay valid
	keysTrusted  = 10 * time.Minute // after that the issuer is queried before they are used
	keysAgain    = 10 * time.Second // least time between two fetches
	keysTimeout  = 5 * time.Second  // of a fetch, and so the longest time that a call waits for one
	maxKeysBytes = 1 << 20          // of a response
	maxRedirects = 5                // of a request
	clockLeeway  = 30 * time.Second // between the issuer's clock and this one
	// maxTokenBytes limits the bytes that are decoded before a signature is checked.
	maxTokenBytes = 16 << 10
)

// issuer names people by tokens that it has signed (OpenID Connect, RFC 7519): a JWT with its name, our audience, and
// an end, signed with one of the keys that it publishes, by a public-key algorithm. Nothing else of a token is
// trusted.
//
// Keys are fetched when they are needed, each time by OpenID Connect Discovery, so that neither a withdrawn key nor
// an old address is trusted for longer than keysTrusted. That includes the first call after a quiet night: it waits
// for the issuer. If calls are frequent, none waits, because the keys are fetched again in the background before.
// While the issuer does not respond, the last keys stay valid: tokens expire by themselves, and the issuer's outage
// must not become ours. Calls do not wait for an issuer that was queried less than keysTrusted ago. A token with an
// unknown key triggers a fetch immediately, but at most one per keysAgain, so that invalid tokens cannot make us
// flood the issuer; its call waits for it.
type issuer struct {
	entry  identityEntry
	parser *jwt.Parser
	log    *slog.Logger // set before use
	flight singleflight.Group

	mu      sync.Mutex // guards the fields below
	keys    keyfunc.Keyfunc
	fetched time.Time // when keys were fetched
	asked   time.Time // when the last fetch ended
	err     error     // of the last fetch
}

func newIssuer(e identityEntry) (*issuer, error) {
	e.UserClaim, e.GroupsClaim = cmp.Or(e.UserClaim, issuerUserClaim), cmp.Or(e.GroupsClaim, issuerGroups)
	if err := checkURL(string(e.Issuer)); err != nil {
		return nil, fmt.Errorf("identity: issuer is %q, needs %w", e.Issuer, err)
	}
	if e.Audience == "" {
		return nil, errors.New("identity: needs audience: without it tokens for others' services would count here")
	}
	if _, err := e.roots(); err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	return &issuer{
		entry: e, log: slog.New(slog.DiscardHandler),
		parser: jwt.NewParser(jwt.WithIssuer(string(e.Issuer)), jwt.WithAudience(string(e.Audience)),
			jwt.WithExpirationRequired(), jwt.WithLeeway(clockLeeway),
			jwt.WithValidMethods(
				[]string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})),
	}, nil
}

// roots returns the authorities that the issuer's certificate is verified with; nil: the system's.
func (i *identityEntry) roots() (*x509.CertPool, error) {
	if i.CA == "" {
		return nil, nil
	}
	pem, err := readFile(string(i.CA))
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca: %s has no certificate", i.CA)
	}
	return pool, nil
}

// checkURL checks an address of keys: anyone who could change the keys in transit could be any person.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback.IsHost(u.Hostname())) {
		return errors.New("a URL with https, or with http on the loopback interface")
	}
	return nil
}

// names returns the person that a call's token names. ok means that the call has a token of an issuer's form.
func (i *issuer) names(r *http.Request) (id identity, ok bool, p *Problem) {
	header := r.Header.Values("Authorization")
	if len(header) != 1 {
		return id, false, nil
	}
	scheme, token, _ := strings.Cut(header[0], " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || strings.Count(token, ".") != 2 {
		return id, false, nil
	}
	if len(token) > maxTokenBytes {
		return id, false, unauthenticated(fmt.Sprintf("the bearer token has more than %d bytes", maxTokenBytes))
	}
	claims := jwt.MapClaims{}
	_, err := i.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) { return i.key(r.Context(), t) })
	switch {
	case errors.Is(err, errNoKeys):
		return id, false, NewProblem(http.StatusServiceUnavailable, ReasonIssuerUnavailable,
			"the keys of the issuer of tokens cannot be fetched").after(keysAgain)
	case err != nil:
		return id, false, unauthenticated("the bearer token is not valid: " + whyNot(err))
	}
	if id, err = i.read(claims); err != nil {
		return id, false, unauthenticated("the bearer token is not valid: " + err.Error())
	}
	return id, true, nil
}

// whyNot returns the problem of a token, in our own words, because the library's errors repeat the input.
func whyNot(err error) string {
	for _, why := range []struct {
		err  error
		text string
	}{
		{jwt.ErrTokenExpired, "it has expired"},
		{jwt.ErrTokenNotValidYet, "it is not valid yet"},
		{jwt.ErrTokenInvalidAudience, "it is for another audience"},
		{jwt.ErrTokenInvalidIssuer, "it is from another issuer"},
		{jwt.ErrTokenRequiredClaimMissing, "it has no issuer, no audience or no expiration time"},
		{jwt.ErrTokenSignatureInvalid, "its signature is not valid"},
		{jwkset.ErrKeyNotFound, "its issuer has no such key"},
	} {
		if errors.Is(err, why.err) {
			return why.text
		}
	}
	return "it is not well-formed"
}

// read extracts the person from the claims of a valid token. An email address that the issuer has not verified does
// not count: anyone who can choose an address could be any person.
func (i *issuer) read(claims jwt.MapClaims) (id identity, err error) {
	name := string(i.entry.UserClaim)
	user, ok := claims[name].(string)
	if !ok || user == "" {
		return id, fmt.Errorf("its claim %s is missing, or is not a text", name)
	}
	if verified := claims["email_verified"]; name == "email" && verified != true && verified != "true" {
		return id, errors.New(
			"its claim email_verified is not true: let the issuer set it, or choose another user-claim")
	}
	id.user = user
	switch groups := claims[string(i.entry.GroupsClaim)].(type) {
	case string:
		id.groups = []string{groups}
	case []any:
		for _, g := range groups {
			if name, ok := g.(string); ok {
				id.groups = append(id.groups, name)
			}
		}
	}
	return id, nil
}

// errNoKeys means that no key of the issuer is known yet, or that the call ended before it was.
var errNoKeys = errors.New("the issuer's keys are not known")

// key returns the key that a token must be signed with.
func (i *issuer) key(ctx context.Context, t *jwt.Token) (any, error) {
	i.mu.Lock()
	now := time.Now()
	keys, fetched, asked := i.keys, passed(i.fetched, now), passed(i.asked, now)
	i.mu.Unlock()
	again := asked > keysAgain
	if keys != nil && asked <= keysTrusted {
		key, err := keys.KeyfuncCtx(ctx)(t)
		unknown := errors.Is(err, jwkset.ErrKeyNotFound)
		if !unknown || !again {
			if fetched > keysFresh && again {
				i.ask() // until then calls use the old keys
			}
			return key, err
		}
	}
	if keys == nil && !again {
		return nil, errNoKeys
	}
	select {
	case <-i.ask():
	case <-ctx.Done():
		return nil, errNoKeys
	}
	i.mu.Lock()
	keys = i.keys
	i.mu.Unlock()
	if keys == nil {
		return nil, errNoKeys
	}
	return keys.KeyfuncCtx(ctx)(t)
}

// passed is clocks.Passed, which this package must not import: time in which the machine was suspended counts.
func passed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// ask starts a fetch of the keys; concurrent calls share one. The end of a call does not end the fetch.
func (i *issuer) ask() <-chan singleflight.Result {
	return i.flight.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), keysTimeout)
		defer cancel()
		keys, err := i.fetch(ctx)
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.asked = time.Now(); err == nil {
			i.keys, i.fetched = keys, i.asked
		}
		if err != nil && (i.err == nil || i.err.Error() != err.Error()) {
			i.log.Error("cannot fetch the keys of the token issuer; the last ones stay valid", "issuer",
				string(i.entry.Issuer), "err", err)
		}
		i.err = err
		return nil, nil
	})
}

// fetch fetches the keys. It reads the file of authorities each time, because that may change too.
func (i *issuer) fetch(ctx context.Context) (keyfunc.Keyfunc, error) {
	roots, err := i.entry.roots()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: followed}
	var found struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	body, err := download(ctx, client, strings.TrimSuffix(string(i.entry.Issuer), "/")+
		"/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &found); err != nil {
		return nil, fmt.Errorf("read its configuration: %w", err)
	}
	if found.Issuer != string(i.entry.Issuer) {
		return nil, fmt.Errorf("its own name is %q: issuer must be exactly that", found.Issuer)
	}
	if err := checkURL(found.Keys); err != nil {
		return nil, fmt.Errorf("its jwks_uri is %q, needs %w", found.Keys, err)
	}
	if body, err = download(ctx, client, found.Keys); err != nil {
		return nil, err
	}
	keys, err := keyfunc.NewJWKSetJSON(body)
	if err != nil {
		return nil, fmt.Errorf("read its keys: %w", err)
	}
	return keys, nil
}

// followed returns the reason why a redirect may not be followed.
func followed(to *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if err := checkURL(to.URL.String()); err != nil {
		return fmt.Errorf("it leads to %s, needs %w", to.URL.Redacted(), err)
	}
	return nil
}

func download(ctx context.Context, client *http.Client, from string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", from, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the issuer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxKeysBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the response of %s: %w", from, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("ask %s: response %s", from, resp.Status)
	case len(body) > maxKeysBytes:
		return nil, fmt.Errorf("the response of %s has more than %d bytes", from, maxKeysBytes)
	}
	return body, nil
}
