package topics

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Access has everything that the permissions of a service and of its users depend on.
type Access struct {
	Requests []string // request topics
	Delayed  []string // fixed-delay topics
	// DeadLetters has the dead-letter topics that do not have the name of [DeadLetters].
	DeadLetters map[string]string
	// Events are the request topics that have a topic of events.
	Events []string
	// API says that instances write requests, and read dead letters and events, on behalf of callers of their API.
	API bool
	// Create says that the service makes its own topics.
	Create bool
	Group  string // consumer group of the service
	// TransactionalIDs is the prefix of the service's transactional IDs.
	TransactionalIDs string
	// Targets are the globs of target topics, as in path.Match.
	Targets []string
}

func (a Access) deadLetters(request string) string {
	return cmp.Or(a.DeadLetters[request], DeadLetters(request))
}

// Grant has the operations on one resource that one kind of principal needs.
type Grant struct {
	Resource   kmsg.ACLResourceType
	Name       string // of the resource; "*" is every one
	Prefixed   bool   // every resource whose name begins with Name
	Operations []kmsg.ACLOperation
	// Why is one sentence: the purpose of the grant.
	Why string
}

const (
	read            = kmsg.ACLOperationRead
	write           = kmsg.ACLOperationWrite
	describeConfigs = kmsg.ACLOperationDescribeConfigs
)

func topicGrant(name, why string, ops ...kmsg.ACLOperation) Grant {
	return Grant{Resource: kmsg.ACLResourceTypeTopic, Name: name, Operations: ops, Why: why}
}

// groupGrant is the grant that members of a group need.
func groupGrant(name, why string) Grant {
	return Grant{Resource: kmsg.ACLResourceTypeGroup, Name: name, Operations: []kmsg.ACLOperation{read}, Why: why}
}

// Service returns the permissions of an instance: all that it uses, and no more. Write and Read include Describe. It
// needs no permission on the cluster.
func (a Access) Service() []Grant {
	input, own := []kmsg.ACLOperation{read, describeConfigs}, []kmsg.ACLOperation{read, write, describeConfigs}
	if a.Create {
		own = append(own, kmsg.ACLOperationCreate)
	}
	written := own[1:] // without read, for topics that are read for callers of the API only
	if a.API {
		input, written = []kmsg.ACLOperation{write, read, describeConfigs}, own
	}
	grants := []Grant{
		groupGrant(a.Group, "Instances share the partitions as members of the group, and commit offsets in it."),
		{kmsg.ACLResourceTypeTransactionalId, a.TransactionalIDs, true, []kmsg.ACLOperation{write},
			"Every step is a transaction; whoever acquires a partition ends those of an owner that is gone."},
	}
	if a.API {
		grants = append(grants, groupGrant(Reviewed(a.Group),
			"Its offsets say which dead letters have been reviewed; it has no members."))
	}
	if len(a.Requests) > 0 && a.Group != "" {
		ops := slices.DeleteFunc(slices.Clone(own), func(o kmsg.ACLOperation) bool { return o == write && !a.API })
		grants = append(grants, topicGrant(Calendars(a.Group),
			"Exclusion calendars are read there, and written on behalf of callers of the API.", ops...))
	}
	for _, r := range a.Requests {
		grants = append(grants,
			topicGrant(r, "Requests are read, and the topic's settings are checked.", input...),
			topicGrant(Changelog(r),
				"The changelog holds the pending timers; it is written, and read when a partition is acquired.",
				own...),
			topicGrant(a.deadLetters(r), "Rejected requests are written there.", written...))
		if slices.Contains(a.Events, r) {
			grants = append(grants, topicGrant(Events(r), "The outcomes of timers are written there.", written...))
		}
	}
	for _, d := range a.Delayed {
		grants = append(grants,
			topicGrant(d, "Records are read when they are due, and the topic's settings are checked.", input...),
			topicGrant(Checkpoints(d), "The checkpoints say how far records are passed on; they are written, and "+
				"read when a partition is acquired.", own...),
			topicGrant(DeadLetters(d), "Records that cannot be passed on are written there.", written...))
	}
	return append(grants, a.targets("Timers fire there; the settings tell the largest record that the topic takes.",
		write, describeConfigs)...)
}

// Repair returns the additional permissions to write transaction markers that a broker has lost (KAFKA-20734). One is
// on the cluster, and far-reaching. Without it such a partition waits for an operator.
func (a Access) Repair() []Grant {
	const why = "The topic's open transactions are inspected."
	grants := []Grant{
		{kmsg.ACLResourceTypeCluster, "kafka-cluster", false, []kmsg.ACLOperation{kmsg.ACLOperationAlter},
			"The marker of a transaction is written again."},
		topicGrant("__consumer_offsets", "Open transactions of the group's offsets are inspected.", read),
	}
	for _, r := range slices.Concat(a.Requests, a.Delayed) {
		grants = append(grants, topicGrant(a.deadLetters(r), why, read))
		if slices.Contains(a.Events, r) {
			grants = append(grants, topicGrant(Events(r), why, read))
		}
	}
	return append(grants, a.targets(why, read)...)
}

// Producers returns the permissions of programs that schedule and cancel timers. A program that uses transactions also
// needs Write on its own transactional ID.
func (a Access) Producers() (grants []Grant) {
	for _, r := range a.Requests {
		grants = append(grants, topicGrant(r, "Requests are written there.", write))
	}
	for _, d := range a.Delayed {
		grants = append(grants, topicGrant(d, "Records to be delayed are written there.", write))
	}
	return grants
}

// Consumers returns the permissions of consumers of emissions that are members of group.
func (a Access) Consumers(group string) []Grant {
	return append([]Grant{groupGrant(group, "Its members share the partitions of the targets.")},
		a.targets("Emissions are read, with isolation.level=read_committed.", read)...)
}

// DeadLetterReaders returns the permissions of readers of dead letters that are members of group. They are separate
// because dead letters hold the payloads of all producers.
func (a Access) DeadLetterReaders(group string) []Grant {
	grants := []Grant{groupGrant(group, "Its members share the partitions of the dead letters.")}
	for _, r := range slices.Concat(a.Requests, a.Delayed) {
		grants = append(grants, topicGrant(a.deadLetters(r), "Dead letters are read.", read))
	}
	return grants
}

// EventReaders returns the permissions of readers of events that are members of group; none if there are no events.
func (a Access) EventReaders(group string) []Grant {
	grants := []Grant{groupGrant(group, "Its members share the partitions of the events.")}
	for _, r := range a.Requests {
		if slices.Contains(a.Events, r) {
			grants = append(grants,
				topicGrant(Events(r), "Events are read, with isolation.level=read_committed.", read))
		}
	}
	if len(grants) == 1 {
		return nil
	}
	return grants
}

// targets turns globs into the patterns that Kafka has: a name, a prefix, or all. If a glob says more than that, the
// pattern is wider, and the service's own list of globs still applies.
func (a Access) targets(why string, ops ...kmsg.ACLOperation) []Grant {
	var grants []Grant
	for _, glob := range a.Targets {
		g := topicGrant(glob, why, ops...)
		if at := strings.IndexAny(glob, `*?[\`); at >= 0 {
			g.Name, g.Prefixed = glob[:at], true
			if g.Name == "" {
				g.Name, g.Prefixed = "*", false
			}
			if strings.TrimSuffix(glob, "*") != glob[:at] {
				g.Why += fmt.Sprintf(" Kafka has no pattern for %s: this one is wider.", glob)
			}
		}
		if !slices.ContainsFunc(grants, func(o Grant) bool { return o.covers(g) }) {
			grants = slices.DeleteFunc(grants, g.covers)
			grants = append(grants, g)
		}
	}
	return grants
}

// covers reports whether o's resources are among g's.
func (g Grant) covers(o Grant) bool {
	switch {
	case g.Name == "*" && !g.Prefixed:
		return true
	case g.Prefixed:
		return strings.HasPrefix(o.Name, g.Name) && o.Name != "*"
	}
	return !o.Prefixed && g.Name == o.Name
}

// Command is the shell command that grants this permission to the principals. server is its first argument: how it
// reaches the cluster.
func (g Grant) Command(server string, principals ...string) string {
	var b strings.Builder
	b.WriteString("kafka-acls.sh " + server + " --add")
	for _, p := range principals {
		b.WriteString(" --allow-principal " + quote(p))
	}
	for _, op := range g.Operations {
		b.WriteString(" --operation " + OperationName(op))
	}
	b.WriteString(" --" + strings.ReplaceAll(strings.ToLower(g.Resource.String()), "_", "-"))
	if g.Resource == kmsg.ACLResourceTypeCluster {
		return b.String()
	}
	b.WriteString(" " + quote(g.Name))
	if g.Prefixed {
		b.WriteString(" --resource-pattern-type prefixed")
	}
	return b.String()
}

// Only returns the grant for some of its operations.
func (g Grant) Only(ops ...kmsg.ACLOperation) Grant {
	g.Operations = ops
	return g
}

// Missing is one sentence that says which permission a principal lacks, and how to grant it.
func (g Grant) Missing(server, principal string) string {
	return g.missing(principal, server, principal)
}

func (g Grant) missing(who, server, principal string) string {
	names := make([]string, len(g.Operations))
	for i, op := range g.Operations {
		names[i] = OperationName(op)
	}
	return fmt.Sprintf("%s is missing permission %s on %s; grant it with: %s", who, strings.Join(names, ", "),
		g.ResourceName(), g.Command(server, principal))
}

// MayNotWrite is the sentence for a target that rejects the service, if neither the service's principal nor the
// administrator's way to the cluster is known.
func MayNotWrite(topic string) string {
	return topicGrant(topic, "", write).missing("the service", "--bootstrap-server HOST:PORT", "User:NAME")
}

// ResourceName names the resource, for people.
func (g Grant) ResourceName() string {
	kind := map[kmsg.ACLResourceType]string{
		kmsg.ACLResourceTypeTopic: "topic", kmsg.ACLResourceTypeGroup: "group",
		kmsg.ACLResourceTypeTransactionalId: "transactional ID", kmsg.ACLResourceTypeCluster: "cluster",
	}[g.Resource]
	if g.Prefixed {
		return fmt.Sprintf("each %s that begins with %s", kind, g.Name)
	}
	return kind + " " + g.Name
}

// OperationName is the name of an operation as Kafka's tools take it.
func OperationName(op kmsg.ACLOperation) string {
	var b strings.Builder
	for word := range strings.SplitSeq(op.String(), "_") {
		b.WriteString(word[:1] + strings.ToLower(word[1:]))
	}
	return b.String()
}

// quote makes text one word of a POSIX shell.
func quote(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("._-:/%+,@=", r)
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
