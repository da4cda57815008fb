package access

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits for people and their groups.
const (
	maxPeople       = 1000 // users, and groups, of one caller
	maxIdentity     = 256  // bytes of the name of a user or of a group
	maxGroups       = 1000 // of one user
	maxJoined       = 8    // callers that one user matches, by name and by groups
	maxJoinedBytes  = 200  // of their names together: they are sent in the header that instances sign
	joined          = "+"  // separates them; no caller's name contains it
	userHeader      = "X-Forwarded-User"
	groupsHeader    = "X-Forwarded-Groups"
	issuerUserClaim = "email"
	issuerGroups    = "groups"
)

// identity is a person, as named by an issuer of tokens or a trusted proxy. The file of callers decides the rights of
// a person: the person is every caller that lists their name or one of their groups. So the rights of people and
// programs are in one place, a change of the file applies to both within a second, and a forwarded call carries only
// a caller's name.
type identity struct {
	user   string
	groups []string
}

// The YAML of the file's part about people.
type (
	identityEntry struct {
		Issuer      text `yaml:"issuer"`
		Audience    text `yaml:"audience"`
		UserClaim   text `yaml:"user-claim"`
		GroupsClaim text `yaml:"groups-claim"`
		CA          text `yaml:"ca"`
	}
	proxyEntry struct {
		Certificates []text `yaml:"certificates"`
		UserHeader   text   `yaml:"user-header"`
		GroupsHeader text   `yaml:"groups-header"`
	}
)

// proxy is a caller that names, in two headers, the person on whose behalf it calls. From any other caller these
// headers are ignored.
type proxy struct {
	certificates map[string]bool // by name as [certificateNames] returns it
	user, groups string          // names of headers, canonical
}

func parseProxy(e *proxyEntry) (*proxy, error) {
	if e == nil {
		return nil, nil
	}
	p := &proxy{
		certificates: make(map[string]bool),
		user:         http.CanonicalHeaderKey(cmp.Or(string(e.UserHeader), userHeader)),
		groups:       http.CanonicalHeaderKey(cmp.Or(string(e.GroupsHeader), groupsHeader)),
	}
	if p.user == p.groups || p.user == "Authorization" || p.groups == "Authorization" {
		return nil, errors.New("proxy: user-header and groups-header need to be two headers, and not Authorization")
	}
	if len(e.Certificates) == 0 || len(e.Certificates) > maxCredentials {
		return nil, fmt.Errorf("proxy: needs 1 to %d certificates that it is known by", maxCredentials)
	}
	for _, c := range e.Certificates {
		if err := checkCertificate(string(c)); err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
		p.certificates[string(c)] = true
	}
	return p, nil
}

// names returns the person that a proxy's call is for. ok means that the call is the proxy's and names a person. Only
// a certificate that was verified at the handshake counts.
func (p *proxy) names(r *http.Request) (id identity, ok bool, problem *Problem) {
	if p == nil || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return id, false, nil
	}
	known := func(name string) bool { return p.certificates[name] }
	if !slices.ContainsFunc(certificateNames(r.TLS.PeerCertificates[0]), known) {
		return id, false, nil
	}
	users := r.Header.Values(p.user)
	if len(users) == 0 {
		return id, false, nil // it forwards a call of a program, which has its own credentials
	}
	if len(users) > 1 {
		return id, false, unauthenticated("the proxy names several users: it must replace the header " + p.user +
			", not add to it")
	}
	id.user = strings.TrimSpace(users[0])
	for _, line := range r.Header.Values(p.groups) {
		for group := range strings.SplitSeq(line, ",") {
			if group = strings.TrimSpace(group); group != "" {
				id.groups = append(id.groups, group)
			}
		}
	}
	return id, true, nil
}

// checkPerson checks the name of a user or of a group.
func checkPerson(name string) error {
	if name == "" || len(name) > maxIdentity || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("name of a user or group is %q, needs 1 to %d bytes that can be printed", name, maxIdentity)
	}
	return nil
}

// addPeople records the users and groups of a caller.
func (c *callers) addPeople(a *account, e callerEntry) error {
	if len(e.Users) > maxPeople || len(e.Groups) > maxPeople {
		return fmt.Errorf("needs at most %d users and as many groups", maxPeople)
	}
	for _, list := range []struct {
		names []text
		by    map[string][]*account
	}{{e.Users, c.byUser}, {e.Groups, c.byGroup}} {
		for _, name := range list.names {
			if err := checkPerson(string(name)); err != nil {
				return err
			}
			if accounts := list.by[string(name)]; !slices.Contains(accounts, a) {
				list.by[string(name)] = append(accounts, a)
			}
		}
	}
	return nil
}

// person merges the callers that a person matches into one caller with the rights of all.
func (c *callers) person(id identity) (*account, *Problem) {
	if err := checkPerson(id.user); err != nil {
		return nil, unauthenticated("the caller has no usable name: " + err.Error())
	}
	if len(id.groups) > maxGroups {
		return nil, unauthenticated(fmt.Sprintf("user %q is in more than %d groups", id.user, maxGroups))
	}
	found := make(map[string]*account)
	for _, a := range c.byUser[id.user] {
		found[a.caller.Name] = a
	}
	for _, group := range id.groups {
		for _, a := range c.byGroup[group] {
			found[a.caller.Name] = a
		}
	}
	name := strings.Join(slices.Sorted(maps.Keys(found)), joined)
	switch {
	case len(found) == 0:
		return nil, unauthenticated(fmt.Sprintf(
			"user %q, and the groups it is in, belong to no caller of the file (api-users)", id.user))
	case len(found) > maxJoined || len(name) > maxJoinedBytes:
		return nil, unauthenticated(fmt.Sprintf("user %q belongs to %d callers of the file (api-users), needs %d at "+
			"most, with names of %d bytes together", id.user, len(found), maxJoined, maxJoinedBytes))
	}
	a := *c.named(name)
	a.caller.User = id.user
	return &a, nil
}

// named returns the caller of a name, which may be several names joined for one person; nil if the file does not have
// them all. A person with several callers has the limits of the first one.
func (c *callers) named(name string) *account {
	first, more, several := strings.Cut(name, joined)
	a := c.byName[first]
	if a == nil || !several {
		return a
	}
	both := *a
	both.caller.Name, both.caller.grants, both.password = name, slices.Clone(a.caller.grants), nil
	for other := range strings.SplitSeq(more, joined) {
		o := c.byName[other]
		if o == nil {
			return nil
		}
		both.caller.grants = append(both.caller.grants, o.caller.grants...)
	}
	return &both
}

// personOf finds the person that makes a call. ok is false if a program makes it.
func (c *callers) personOf(r *http.Request) (a *account, ok bool, p *Problem) {
	id, ok, p := c.proxy.names(r)
	if p == nil && !ok && c.issuer != nil {
		id, ok, p = c.issuer.names(r)
	}
	if p == nil && ok {
		a, p = c.person(id)
	}
	return a, ok || p != nil, p
}
