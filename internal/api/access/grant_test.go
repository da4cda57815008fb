package access

import (
	"context"
	"errors"
	"net/http"
	"testing"
)

func TestMay(t *testing.T) {
	shop := []Grant{{Write, "orders*", "shop-"}, {Read, "orders", ""}, {Admin, "mail", "a"}}
	for _, c := range []struct {
		name      string
		grants    []Grant
		role      Role
		topic, id string
		want      bool
	}{
		{"a longer prefix is inside", shop, Write, "orders", "shop-1", true},
		{"the prefix itself", shop, Write, "orders.eu", "shop-", true},
		{"shorter than the prefix", shop, Write, "orders", "shop", false},
		{"the empty ID is all", shop, Write, "orders", "", false},
		{"another case", shop, Write, "orders", "Shop-1", false},
		{"a wider grant of a lesser role", shop, Read, "orders", "other", true},
		{"which is not for writing", shop, Write, "orders", "other", false},
		{"nor for a longer name", shop, Read, "orders.eu", "other", false},
		{"a role includes the lesser", shop, Read, "mail", "a1", true},
		{"on that topic", shop, Admin, "orders", "a1", false},
		{"no topic", shop, Read, "", "", false},
		{"no topic, with *", []Grant{{Admin, "*", ""}}, Admin, "", "", true},
		{"no topic, with * and a prefix", []Grant{{Admin, "*", "a"}}, Read, "", "", false},
		{"a * in the middle of a name is none", []Grant{{Admin, "a*", ""}}, Read, "xa*", "1", false},
		{"the name a*", []Grant{{Admin, "a", ""}}, Read, "a*", "1", false},
		{"an ID with slashes", []Grant{{Write, "t", "a/"}}, Write, "t", "a/../b", true},
		{"which is not cleaned", []Grant{{Write, "t", "b"}}, Write, "t", "a/../b", false},
		{"a calendar", []Grant{{Admin, "calendar:de*", ""}}, Admin, "calendar:de-x", "", true},
		{"another calendar", []Grant{{Admin, "calendar:de*", ""}}, Read, "calendar:fr", "", false},
		{"a topic of a calendar's name", []Grant{{Admin, "calendar:*", ""}}, Read, "de", "", false},
		{"the service, with calendars", []Grant{{Admin, "calendar:*", ""}}, Read, "", "", false},
		{"a calendar, with *", []Grant{{Read, "*", ""}}, Read, "calendar:de", "", true},
		{"which is not for changing it", []Grant{{Write, "*", ""}}, Admin, "calendar:de", "", false},
		{"a calendar, with * and a prefix", []Grant{{Admin, "*", "a"}}, Read, "calendar:de", "", false},
		{"no grants", nil, Read, "orders", "1", false},
		{"a role of nothing", []Grant{{0, "*", ""}}, Read, "orders", "1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := May(WithCaller(t.Context(), Caller{Name: "x", grants: c.grants}), c.role, c.topic, c.id)
			if (err == nil) != c.want {
				t.Errorf("err = %v", err)
			}
			if p, ok := errors.AsType[*Problem](err); err != nil &&
				(!ok || p.Status != http.StatusForbidden || p.Reason != ReasonForbidden) {
				t.Errorf("err = %#v", err)
			}
		})
	}
}

// A refusal names the right that would do: to the ID, to all of a topic, or only to some IDs of it.
func TestRefusalsNameWhatWouldDo(t *testing.T) {
	ctx := WithCaller(t.Context(), Caller{Name: "x", grants: []Grant{{Read, "orders", "a"}}})
	for want, err := range map[string]error{
		`caller "x" has no right to write "a1" on topic "orders"`:   May(ctx, Write, "orders", "a1"),
		`caller "x" has no right to read all of topic "orders"`:     May(ctx, Read, "orders", ""),
		`caller "x" has no right to write any ID of topic "orders"`: MaySome(ctx, Write, "orders"),
	} {
		if p, ok := errors.AsType[*Problem](err); !ok || p.Detail != want+": a grant in api-users gives it" {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := MaySome(ctx, Read, "orders"); err != nil {
		t.Error(err)
	}
}

// Without the guard there are no rights.
func TestNobody(t *testing.T) {
	if err := May(context.Background(), Read, "orders", "1"); err == nil {
		t.Error("nobody may read")
	}
}
