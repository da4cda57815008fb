package access

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"golang.org/x/crypto/bcrypt"

	"github.com/waterclock/waterclock/internal/kit/yamltext"
)

// Limits of the file of callers.
const (
	maxCallers     = 10_000
	maxCredentials = 16  // tokens of a caller, and certificates
	maxGrants      = 100 // of a caller; each call goes through them
	maxPrefixBytes = 512 // like an ID
	minCost        = 10  // of bcrypt: below it guessing is cheap
	maxCost        = 14  // a second or more of processor time for each login
)

// tokenHash is the SHA-256 of a bearer token. A fast hash without salt would be wrong for passwords. It is right
// here: a token is 256 random bits made by [NewToken], so there is no list of likely tokens to try, and no two are
// the same. It also makes the lookup by map safe: its time depends on the hash, which an attacker cannot steer
// towards a known one.
type tokenHash [sha256.Size]byte

const tokenScheme = "sha256:"

// account is a caller as described in the file.
type account struct {
	caller   Caller
	password []byte // bcrypt hash; nil: none
	limiter  *limiter
}

// callers is the content of the file. It does not change once it is read.
type callers struct {
	byName        map[string]*account
	byToken       map[tokenHash]*account
	byCertificate map[string]*account // by name as returned by [certificateNames]
	byUser        map[string][]*account
	byGroup       map[string][]*account
	issuer        *issuer // names people; nil if there is none
	proxy         *proxy  // names people; nil if there is none
	// decoy is a hash of the highest cost. Passwords of unknown users are compared with it.
	decoy []byte
}

// CheckCallers returns the problems of a file of callers.
func CheckCallers(path string) error {
	_, err := loadCallers(path)
	return err
}

func loadCallers(path string) (*callers, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return parseCallers(text)
}

// UnservedGrants returns the grants of a file of callers, each with its caller, that cover none of the topics. That
// is not an error: other instances may serve other topics.
func UnservedGrants(path string, topics []string) (names []string, err error) {
	c, err := loadCallers(path)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(c.byName)) {
		for _, g := range c.byName[name].caller.grants {
			if !strings.HasPrefix(g.Topic, calendarTopic) && !slices.ContainsFunc(topics, g.Covers) {
				names = append(names, fmt.Sprintf("%s, %s of topic %s", name, g.Role, g.Topic))
			}
		}
	}
	return names, nil
}

// The YAML of the file.
type (
	callersFile struct {
		Identity *identityEntry         `yaml:"identity"`
		Proxy    *proxyEntry            `yaml:"proxy"`
		Callers  map[string]callerEntry `yaml:"callers"`
	}
	callerEntry struct {
		Password     text         `yaml:"password"`
		Tokens       []text       `yaml:"tokens"`
		Certificates []text       `yaml:"certificates"`
		Users        []text       `yaml:"users"`
		Groups       []text       `yaml:"groups"`
		Grants       []grantEntry `yaml:"grants"`
	}
	grantEntry struct {
		Role     text `yaml:"role"`
		Topic    text `yaml:"topic"`
		IDPrefix text `yaml:"id-prefix"`
		Calendar text `yaml:"calendar"` // instead of topic
	}
	// text is a scalar exactly as written: the prefix 007 is not the number 7.
	text string
)

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (t *text) UnmarshalYAML(n ast.Node) error {
	scalar, err := yamltext.Scalar(n)
	if err != nil {
		return &scalarError{n.GetToken()}
	}
	*t = text(scalar)
	return nil
}

// scalarError means that the value at a token is not a scalar.
type scalarError struct{ at *token.Token }

func (s *scalarError) Error() string {
	return fmt.Sprintf("line %d: %s needs a single value, between quotes if it has a colon", s.at.Position.Line,
		yamltext.KeyOf(s.at.Prev))
}

var (
	callerName   = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9._@-]{0,63}$`)
	calendarGlob = regexp.MustCompile(`^([a-zA-Z0-9._-]{1,64}\*?|\*)$`)
	topicGlob    = regexp.MustCompile(`^([a-zA-Z0-9._-]{1,249}\*?|\*)$`)
)

// CheckName returns the problem of a caller's name.
func CheckName(name string) error {
	if !callerName.MatchString(name) || name == anonymous {
		return fmt.Errorf("name of a caller is %q, needs a letter and up to 63 letters, digits, dots, underscores, "+
			"hyphens and @, and not to be %s", name, anonymous)
	}
	return nil
}

// parseCallers reads the file. Its error has all problems of the entries, and no hash.
func parseCallers(data []byte) (*callers, error) {
	file, err := decodeCallers(data)
	if err != nil {
		return nil, err
	}
	if len(file.Callers) == 0 {
		return nil, errors.New("it names no caller: needs callers:, by name, each with password, tokens, " +
			"certificates, users or groups, and grants")
	}
	if len(file.Callers) > maxCallers {
		return nil, fmt.Errorf("it has %d callers, needs %d at most", len(file.Callers), maxCallers)
	}
	c := &callers{
		byName:        make(map[string]*account, len(file.Callers)),
		byToken:       make(map[tokenHash]*account),
		byCertificate: make(map[string]*account),
		byUser:        make(map[string][]*account),
		byGroup:       make(map[string][]*account),
	}
	var errs []error
	if file.Identity != nil {
		if c.issuer, err = newIssuer(*file.Identity); err != nil {
			errs = append(errs, err)
		}
	}
	if c.proxy, err = parseProxy(file.Proxy); err != nil {
		errs = append(errs, err)
	}
	cost := bcrypt.DefaultCost
	for _, name := range slices.Sorted(maps.Keys(file.Callers)) {
		a, err := c.add(name, file.Callers[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("callers.%.100s: %w", name, err))
			continue
		}
		if a.password != nil {
			c, _ := bcrypt.Cost(a.password) // add has checked it
			cost = max(cost, c)
		}
	}
	c.decoy = decoyOf(cost)
	return c, errors.Join(errs...)
}

// decodeCallers decodes the YAML. The library panics at some malformed files, such as a list that is only a tag. A
// file that is being edited must not end the process.
func decodeCallers(data []byte) (file callersFile, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("it is not well-formed YAML")
		}
	}()
	data, need := yamltext.UTF8(data)
	if need != "" {
		return file, fmt.Errorf("it needs %s", need)
	}
	if err := yaml.UnmarshalWithOptions(data, &file, yaml.Strict()); err != nil {
		if own, ok := errors.AsType[*scalarError](err); ok {
			return file, own
		}
		hint := ""
		if bytes.Contains(data, []byte(": *")) {
			hint = "; a * that begins a value needs quotes: '*'"
		}
		line, key, need := yamltext.Fault(err)
		if key == "" {
			key = "it"
		}
		return file, fmt.Errorf("line %d: %s needs %s%s", line, key, need, hint)
	}
	return file, nil
}

// decoyOf returns a well-formed hash of a cost. It was not made from a password, so none matches it.
func decoyOf(cost int) []byte {
	return fmt.Appendf(nil, "$2a$%02d$%s", cost, strings.Repeat(".", 53))
}

func (c *callers) add(name string, e callerEntry) (*account, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if e.Password == "" && len(e.Tokens)+len(e.Certificates)+len(e.Users)+len(e.Groups) == 0 {
		return nil, errors.New("needs password, tokens, certificates, users or groups")
	}
	if len(e.Tokens) > maxCredentials || len(e.Certificates) > maxCredentials {
		return nil, fmt.Errorf("needs at most %d tokens and as many certificates", maxCredentials)
	}
	grants, err := parseGrants(e.Grants)
	if err != nil {
		return nil, err
	}
	a := &account{caller: Caller{Name: name, grants: grants}}
	if a.password, err = passwordOf(string(e.Password)); err != nil {
		return nil, err
	}
	for _, t := range e.Tokens {
		hash, err := parseTokenHash(string(t))
		if err != nil {
			return nil, err
		}
		if other := c.byToken[hash]; other != nil {
			return nil, fmt.Errorf("a token is that of %s too: make one for each with waterclock api token",
				other.caller.Name)
		}
		c.byToken[hash] = a
	}
	for _, cert := range e.Certificates {
		if err := checkCertificate(string(cert)); err != nil {
			return nil, err
		}
		if other := c.byCertificate[string(cert)]; other != nil {
			return nil, fmt.Errorf("certificate %q is that of %s too", cert, other.caller.Name)
		}
		c.byCertificate[string(cert)] = a
	}
	if err := c.addPeople(a, e); err != nil {
		return nil, err
	}
	c.byName[name] = a
	return a, nil
}

func checkCertificate(name string) error {
	kind, rest, _ := strings.Cut(name, ":")
	if !slices.Contains([]string{"subject", "dns", "uri", "email"}, kind) || rest == "" {
		return fmt.Errorf("certificate is %q, needs subject:CN=…, dns:…, uri:… or email:…", name)
	}
	return nil
}

// grantsOf returns the grants of a caller, none if the file does not name the caller.
func (c *callers) grantsOf(name string) []Grant {
	if a := c.named(name); a != nil {
		return a.caller.grants
	}
	return nil
}

func parseGrants(entries []grantEntry) (grants []Grant, err error) {
	if len(entries) == 0 || len(entries) > maxGrants {
		return nil, fmt.Errorf("needs 1 to %d grants", maxGrants)
	}
	for _, e := range entries {
		g := Grant{Topic: string(e.Topic), IDPrefix: string(e.IDPrefix)}
		if g.Role, err = ParseRole(string(e.Role)); err != nil {
			return nil, err
		}
		if e.Calendar != "" {
			err = g.ofCalendars(string(e.Calendar))
		} else {
			err = g.check()
		}
		if err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// ofCalendars makes a grant one to calendars.
func (g *Grant) ofCalendars(names string) error {
	switch {
	case !calendarGlob.MatchString(names):
		return fmt.Errorf(
			"calendar is %q, needs the name of a calendar, the beginning of names and a *, or '*' for all", names)
	case g.Topic != "" || g.IDPrefix != "":
		return errors.New("a grant needs one of calendar and topic, and id-prefix belongs to topic")
	case g.Role == Write:
		return fmt.Errorf("role is %s, needs read or admin for calendars", g.Role)
	}
	g.Topic = calendarTopic + names
	return nil
}

func (g Grant) check() error {
	if !topicGlob.MatchString(g.Topic) {
		return fmt.Errorf(
			"topic is %q, needs the name of a request topic, the beginning of names and a *, or '*' for all", g.Topic)
	}
	if len(g.IDPrefix) > maxPrefixBytes {
		return fmt.Errorf("id-prefix has %d bytes, needs %d at most", len(g.IDPrefix), maxPrefixBytes)
	}
	return nil
}

func passwordOf(hash string) ([]byte, error) {
	if hash == "" {
		return nil, nil
	}
	// The length is checked here, because Cost accepts a truncated hash.
	cost, err := bcrypt.Cost([]byte(hash))
	if err != nil || len(hash) != 60 || cost < minCost || cost > maxCost {
		return nil, fmt.Errorf("password needs a bcrypt hash of cost %d to %d, such as waterclock api user prints",
			minCost, maxCost)
	}
	return []byte(hash), nil
}

func parseTokenHash(text string) (hash tokenHash, err error) {
	digits, ok := strings.CutPrefix(text, tokenScheme)
	b, err := hex.DecodeString(digits)
	if !ok || err != nil || len(b) != len(hash) {
		return hash, errors.New("a token needs sha256: and 64 hexadecimal digits, as waterclock api token prints; " +
			"never the token itself")
	}
	return tokenHash(b), nil
}

// certificateNames returns the names by which the file may list a certificate: the subject as RFC 2253 writes it (most
// specific first), and the alternative names.
func certificateNames(cert *x509.Certificate) (names []string) {
	if subject := cert.Subject.String(); subject != "" {
		names = append(names, "subject:"+subject)
	}
	for _, n := range cert.DNSNames {
		names = append(names, "dns:"+n)
	}
	for _, n := range cert.URIs {
		names = append(names, "uri:"+n.String())
	}
	for _, n := range cert.EmailAddresses {
		names = append(names, "email:"+n)
	}
	return names
}

// Limits of passwords and tokens.
const (
	MinPassword = 12 // bytes: the hash may be attacked offline if the file leaks
	MaxPassword = 72 // bytes: bcrypt ignores the rest
	tokenBytes  = 32
	tokenPrefix = "wct_" // so that secret scanners find it
	// A token shorter than this cannot have 128 random bits. It is rejected even if the file has its hash, so that
	// words are not used as tokens.
	minToken = 22
)

// PasswordEntry returns an entry of the file of callers for a caller with a password.
func PasswordEntry(name string, password []byte, grants ...Grant) ([]byte, error) {
	if len(password) < MinPassword || len(password) > MaxPassword {
		return nil, fmt.Errorf("password has %d bytes, needs %d to %d", len(password), MinPassword, MaxPassword)
	}
	hash, err := bcrypt.GenerateFromPassword(password, bcrypt.DefaultCost)
	if err != nil {
		return nil, fmt.Errorf("hash password: %w", err)
	}
	return entry(name, grants, yaml.MapItem{Key: "password", Value: string(hash)})
}

// TokenEntry returns an entry of the file of callers for a caller with a token.
func TokenEntry(name, token string, grants ...Grant) ([]byte, error) {
	if len(token) < minToken {
		return nil, errors.New("token is too short")
	}
	hash := sha256.Sum256([]byte(token))
	return entry(name, grants, yaml.MapItem{Key: "tokens", Value: []string{tokenScheme + hex.EncodeToString(hash[:])}})
}

// NewToken makes a bearer token.
func NewToken() string {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// entry writes an entry and reads it back, so that a printed entry is never rejected.
func entry(name string, grants []Grant, credential yaml.MapItem) ([]byte, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	var all []yaml.MapSlice
	for _, g := range grants {
		err := g.check()
		if names, ok := strings.CutPrefix(g.Topic, calendarTopic); ok {
			err = (&Grant{Role: g.Role}).ofCalendars(names)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, g.entry())
	}
	file := yaml.MapSlice{{Key: "callers", Value: yaml.MapSlice{{Key: name, Value: yaml.MapSlice{
		credential, {Key: "grants", Value: all},
	}}}}}
	text, err := yaml.MarshalWithOptions(file, yaml.IndentSequence(true))
	if err != nil {
		return nil, fmt.Errorf("write entry of %s: %w", name, err)
	}
	if _, err := parseCallers(text); err != nil {
		return nil, fmt.Errorf("write entry of %s: %w", name, err)
	}
	return text[len("callers:\n"):], nil
}

// entry returns the grant as the file has it.
func (g Grant) entry() yaml.MapSlice {
	out := yaml.MapSlice{{Key: "role", Value: g.Role.String()}}
	if names, ok := strings.CutPrefix(g.Topic, calendarTopic); ok {
		return append(out, yaml.MapItem{Key: "calendar", Value: names})
	}
	out = append(out, yaml.MapItem{Key: "topic", Value: g.Topic})
	if g.IDPrefix != "" {
		out = append(out, yaml.MapItem{Key: "id-prefix", Value: g.IDPrefix})
	}
	return out
}
