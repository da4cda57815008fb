package api

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock/internal/api/access"
)

// Caller is who makes a call, and what it may do.
type Caller struct {
	Name    string  `json:"name" doc:"In the file of callers."`
	Service bool    `json:"service" doc:"It may see the service as a whole: getCluster."`
	Rights  []Right `json:"rights" nullable:"false" doc:"By topic and prefix. A right to all IDs of a topic has no prefix, and comes first."`
}

// Right is what a caller may do with IDs of a request topic.
type Right struct {
	Topic  string `json:"topic"`
	Prefix string `json:"prefix,omitempty" doc:"Of IDs that begin with it; empty: of all."`
	Role   string `json:"role" enum:"read,write,admin" doc:"Each includes those before it."`
}

// registerCaller registers the operation by which callers see their own rights.
func (t *topics) registerCaller(h huma.API) {
	op := operation("service", http.MethodGet, "/v1/caller", "getCaller", "See what the caller may do",
		"Its rights to request topics that are served.")
	reads(h, op, func(ctx context.Context, _ *struct{}) (*Caller, error) {
		grants := []access.Grant{{Role: access.Admin, Topic: "*"}}
		if t.rights.Grants != nil {
			grants = t.rights.Grants(ctx)
		}
		return &Caller{t.caller(ctx), t.may(ctx, access.Read, "", "") == nil, t.rightsOf(grants)}, nil
	})
}

// rightsOf returns the rights that grants give to the request topics that are served, without those that a wider right
// includes.
func (t *topics) rightsOf(grants []access.Grant) []Right {
	all := []Right{}
	for _, name := range slices.Sorted(maps.Keys(t.all)) {
		if t.all[name].Delay {
			continue
		}
		roles := make(map[string]access.Role) // by prefix
		for _, g := range grants {
			if g.Covers(name) {
				roles[g.IDPrefix] = max(roles[g.IDPrefix], g.Role)
			}
		}
		for prefix, role := range roles {
			included := false
			for other, its := range roles {
				included = included || other != prefix && strings.HasPrefix(prefix, other) && its >= role
			}
			if !included {
				all = append(all, Right{name, prefix, role.String()})
			}
		}
	}
	slices.SortFunc(all, func(a, b Right) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Prefix, b.Prefix))
	})
	return all
}
