package commands

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/node/policy"
)

// ACLOptions name the principals to which the commands that ACLs prints grant rights. There are no commands for a role
// without principals.
type ACLOptions struct {
	Service           []string // principals, such as User:x; empty: the one that the settings log in as
	Producers         []string
	Consumers         []string
	DeadLetterReaders []string
	EventReaders      []string
	ConsumerGroup     string
	// Tenant limits the commands to the users of one request topic or fixed-delay topic, without the service. Empty:
	// the service, and the users of all topics.
	Tenant string
	// Repair adds what the service needs to write lost transaction markers.
	Repair bool
}

// ACLs prints the commands that give a service with these settings, and its users, the rights that they need. It asks
// no broker.
func ACLs(cfg *config.Config, o ACLOptions, out io.Writer) error {
	if len(o.Service) == 0 {
		o.Service = []string{connect.Principal(cfg)}
	}
	tenants := slices.Concat(cfg.Requests, cfg.DelayTopics())
	several := len(tenants) > 1
	if o.Tenant != "" {
		if !slices.Contains(tenants, o.Tenant) {
			return &config.Problem{Setting: "tenant", Found: o.Tenant, Need: "one of the request topics: " +
				strings.Join(tenants, ", ")}
		}
		tenants, o.Service = []string{o.Tenant}, nil
	}
	a := policy.Access(cfg)
	var b strings.Builder
	section := func(title string, grants []topics.Grant, principals []string) {
		if len(principals) == 0 || len(grants) == 0 {
			return
		}
		fmt.Fprintf(&b, "# %s: %s\n", title, strings.Join(principals, ", "))
		for _, g := range grants {
			fmt.Fprintf(&b, "\n# %s\n%s\n", g.Why, g.Command(connect.ACLServer(cfg), principals...))
		}
		fmt.Fprintln(&b)
	}
	section("The service", a.Service(), o.Service)
	if o.Repair {
		section("The service, to write transaction markers that a broker has lost (KAFKA-20734)", a.Repair(), o.Service)
	}
	for _, tenant := range tenants {
		a.Requests, a.Delayed, a.Targets = []string{tenant}, nil, cfg.TargetsOf(tenant)
		if !slices.Contains(cfg.Requests, tenant) {
			a.Requests, a.Delayed = nil, []string{tenant}
		}
		of := ""
		if several {
			of = tenant + ": "
		}
		section(of+"Producers, who schedule and cancel", a.Producers(), o.Producers)
		section(of+"Consumers, who receive what fires", a.Consumers(o.ConsumerGroup), o.Consumers)
		section(of+"Whoever looks after dead letters, which hold payloads of all producers",
			a.DeadLetterReaders(o.ConsumerGroup+"-dead-letters"), o.DeadLetterReaders)
		section(of+"Whoever reads events, which name all timers and their targets",
			a.EventReaders(o.ConsumerGroup+"-events"), o.EventReaders)
	}
	_, err := io.WriteString(out, strings.TrimSuffix(b.String(), "\n"))
	return err
}
