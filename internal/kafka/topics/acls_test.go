package topics

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestServiceRights compares the list as kafka-acls.sh gets it: a permission more or less is a decision.
func TestServiceRights(t *testing.T) {
	for _, c := range []struct {
		name   string
		create bool
		want   []string
	}{
		{"topics are made by the service", true, []string{
			"--operation Read --group 'the group'",
			"--operation Write --transactional-id waterclock/the%20group/ --resource-pattern-type prefixed",
			"--operation Read --operation DescribeConfigs --operation Create --topic the_20group.waterclock.calendars",
			"--operation Read --operation DescribeConfigs --topic timers",
			"--operation Read --operation Write --operation DescribeConfigs --operation Create --topic " +
				"timers.waterclock.changelog",
			"--operation Write --operation DescribeConfigs --operation Create --topic timers.waterclock.dead-letters",
			"--operation Write --operation DescribeConfigs --topic orders",
		}},
		{"topics are made by others", false, []string{
			"--operation Read --group 'the group'",
			"--operation Write --transactional-id waterclock/the%20group/ --resource-pattern-type prefixed",
			"--operation Read --operation DescribeConfigs --topic the_20group.waterclock.calendars",
			"--operation Read --operation DescribeConfigs --topic timers",
			"--operation Read --operation Write --operation DescribeConfigs --topic timers.waterclock.changelog",
			"--operation Write --operation DescribeConfigs --topic timers.waterclock.dead-letters",
			"--operation Write --operation DescribeConfigs --topic orders",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := Access{Requests: []string{"timers"}, Create: c.create, Group: "the group",
				TransactionalIDs: "waterclock/the%20group/", Targets: []string{"orders"}}
			check(t, a.Service(), c.want)
		})
	}
}

// With an API the service stores which dead letters have been reviewed, and calendars.
func TestRightsOfTheAPI(t *testing.T) {
	a := Access{Group: "g", API: true}
	check(t, a.Service()[2:], []string{"--operation Read --group g.reviewed"})
	a.Requests = []string{"r"}
	check(t, a.Service()[3:4],
		[]string{"--operation Read --operation Write --operation DescribeConfigs --topic g.waterclock.calendars"})
}

func check(t *testing.T, grants []Grant, want []string) {
	t.Helper()
	var got []string
	for _, g := range grants {
		got = append(got,
			strings.TrimPrefix(g.Command("S", "User:x"), "kafka-acls.sh S --add --allow-principal User:x "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestUsersRights(t *testing.T) {
	a := Access{Requests: []string{"timers", "slow"}, Targets: []string{"orders"}}
	check(t, a.Producers(), []string{"--operation Write --topic timers", "--operation Write --topic slow"})
	check(t, a.Consumers("g"), []string{"--operation Read --group g", "--operation Read --topic orders"})
	check(t, a.Repair(), []string{
		"--operation Alter --cluster", "--operation Read --topic __consumer_offsets",
		"--operation Read --topic timers.waterclock.dead-letters",
		"--operation Read --topic slow.waterclock.dead-letters", "--operation Read --topic orders",
	})
	check(t, a.DeadLetterReaders("u"), []string{
		"--operation Read --group u", "--operation Read --topic timers.waterclock.dead-letters",
		"--operation Read --topic slow.waterclock.dead-letters",
	})
}

// With events, the service may write them, and their readers have permissions of their own.
func TestRightsToEvents(t *testing.T) {
	a := Access{Requests: []string{"timers", "slow"}, Events: []string{"slow"}, Create: true}
	var named []string
	for _, g := range a.Service() {
		if g.Name == Events("slow") || g.Name == Events("timers") {
			named = append(named, g.Command("S"))
		}
	}
	if want := []string{"kafka-acls.sh S --add --operation Write --operation DescribeConfigs --operation Create " +
		"--topic slow.waterclock.events"}; !slices.Equal(named, want) {
		t.Errorf("got %q, want %q", named, want)
	}
	check(t, a.EventReaders("e"), []string{"--operation Read --group e",
		"--operation Read --topic slow.waterclock.events"})
	check(t, a.Repair()[4:], []string{"--operation Read --topic slow.waterclock.events"})
	if none := (Access{Requests: []string{"timers"}}).EventReaders("e"); none != nil {
		t.Errorf("nobody has events: %v", none)
	}
}

// TestTargetPatterns: a glob becomes the narrowest pattern that Kafka has, and the output says if that is wider. A glob
// that another one covers is left out.
func TestTargetPatterns(t *testing.T) {
	const ops = "--operation Write --operation DescribeConfigs --topic "
	for _, c := range []struct {
		globs string
		want  []string
		wider bool
	}{
		{"orders", []string{ops + "orders"}, false},
		{"mail.*", []string{ops + "mail. --resource-pattern-type prefixed"}, false},
		{"*", []string{ops + "'*'"}, false},
		{"team-?.x", []string{ops + "team- --resource-pattern-type prefixed"}, true},
		{"[ab]*", []string{ops + "'*'"}, true},
		{"a*b*", []string{ops + "a --resource-pattern-type prefixed"}, true},
		{"mail.x mail.* mail.y orders", []string{ops + "mail. --resource-pattern-type prefixed", ops + "orders"},
			false},
		{"orders mail.* *", []string{ops + "'*'"}, false},
		{"* orders mail.*", []string{ops + "'*'"}, false},
		{"orders orders", []string{ops + "orders"}, false},
	} {
		t.Run(c.globs, func(t *testing.T) {
			grants := (Access{Targets: strings.Fields(c.globs)}).Service()[2:]
			check(t, grants, c.want)
			if wider := strings.Contains(grants[0].Why, "this one is wider"); wider != c.wider {
				t.Errorf("said to be wider: %t", wider)
			}
		})
	}
}

// TestMissing checks the sentence: principal, permission, resource, and command.
func TestMissing(t *testing.T) {
	g := Grant{Resource: kmsg.ACLResourceTypeTransactionalId, Name: "waterclock/it's/", Prefixed: true,
		Operations: []kmsg.ACLOperation{kmsg.ACLOperationWrite}}
	want := `User:CN=a b is missing permission Write on each transactional ID that begins with waterclock/it's/; grant ` +
		`it with: kafka-acls.sh --bootstrap-server h:1 --add --allow-principal 'User:CN=a b' --operation Write --transactional-id 'waterclock/it'\''s/' --resource-pattern-type prefixed`
	if got := g.Missing("--bootstrap-server h:1", "User:CN=a b"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := MayNotWrite("orders"); !strings.HasPrefix(got,
		"the service is missing permission Write on topic orders; "+
			"grant it with: kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation "+
			"Write --topic orders") {
		t.Errorf("got %s", got)
	}
}
