package api

import (
	"slices"
	"testing"

	"github.com/waterclock/waterclock/internal/api/access"
)

// A caller's rights are those of its grants on topics that are served, without what a wider one includes.
func TestRightsOfGrants(t *testing.T) {
	ts := &topics{all: map[string]Topic{"orders": {}, "orders.eu": {}, "mail": {}, "retry": {Delay: true}}}
	for _, c := range []struct {
		name   string
		grants []access.Grant
		want   []Right
	}{
		{"none", nil, []Right{}},
		{"all", []access.Grant{{Role: access.Admin, Topic: "*"}},
			[]Right{{"mail", "", "admin"}, {"orders", "", "admin"}, {"orders.eu", "", "admin"}}},
		{"a prefix of some topics", []access.Grant{{Role: access.Write, Topic: "orders*", IDPrefix: "shop-"}},
			[]Right{{"orders", "shop-", "write"}, {"orders.eu", "shop-", "write"}}},
		{"a wider one of a lesser role", []access.Grant{{Role: access.Write, Topic: "mail", IDPrefix: "a"},
			{Role: access.Read, Topic: "mail"}}, []Right{{"mail", "", "read"}, {"mail", "a", "write"}}},
		{"a wider one that includes it", []access.Grant{{Role: access.Read, Topic: "mail", IDPrefix: "ab"},
			{Role: access.Write, Topic: "mail", IDPrefix: "a"}}, []Right{{"mail", "a", "write"}}},
		{"the same twice", []access.Grant{{Role: access.Read, Topic: "mail", IDPrefix: "a"},
			{Role: access.Admin, Topic: "m*", IDPrefix: "a"}}, []Right{{"mail", "a", "admin"}}},
		{"of a topic that is not served",
			[]access.Grant{{Role: access.Read, Topic: "none"}, {Role: access.Read, Topic: "retry"}}, []Right{}},
	} {
		if got := ts.rightsOf(c.grants); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A caller's rights to calendars are those of its grants, in the role that counts for them.
func TestRightsOfGrantsToCalendars(t *testing.T) {
	for _, c := range []struct {
		name   string
		grants []access.Grant
		want   []CalendarRight
	}{
		{"of topics alone", []access.Grant{{Role: access.Admin, Topic: "c*"}}, []CalendarRight{}},
		{"all, with a prefix", []access.Grant{{Role: access.Admin, Topic: "*", IDPrefix: "a"}}, []CalendarRight{}},
		{"a writer of all", []access.Grant{{Role: access.Write, Topic: "*"}}, []CalendarRight{{"*", "read"}}},
		{"some", []access.Grant{{Role: access.Read, Topic: access.CalendarTopic("de")},
			{Role: access.Admin, Topic: access.CalendarTopic("de")},
			{Role: access.Read, Topic: access.CalendarTopic("h-*")}}, []CalendarRight{{"de", "admin"}, {"h-*", "read"}}},
	} {
		if got := calendarRights(c.grants); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
