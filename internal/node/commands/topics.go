package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/node/policy"
)

// checkTopicRights returns an error that names the missing permissions to read topics and, with create, to create them.
func checkTopicRights(ctx context.Context, cfg *config.Config, cl *kgo.Client, create bool) error {
	var grants []topics.Grant
	for _, g := range (topics.Access{Requests: cfg.Requests, Delayed: cfg.DelayTopics(), Create: create,
		Group: cfg.Group}).Service() {
		ops := []kmsg.ACLOperation{kmsg.ACLOperationDescribeConfigs}
		if slices.Contains(g.Operations, kmsg.ACLOperationCreate) {
			ops = append(ops, kmsg.ACLOperationCreate)
		} else {
			ops = append(ops, kmsg.ACLOperationDescribe)
		}
		grants = append(grants, g.Only(ops...))
	}
	missing, err := connect.MissingTopics(ctx, cl, grants)
	if err != nil {
		return err
	}
	var errs []error
	for _, g := range missing {
		errs = append(errs, errors.New(connect.Missing(cfg, g)))
	}
	return errors.Join(errs...)
}

// Topics prints and checks every request topic and fixed-delay topic, and the topics that belong to each. With create,
// it creates the service's own topics that are missing. It returns an error if something is wrong with the topics.
func Topics(ctx context.Context, cfg *config.Config, create bool, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, connect.CommandTimeout)
	defer cancel()
	cl, err := connect.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := checkTopicRights(ctx, cfg, cl, create); err != nil {
		return err
	}
	adm := kadm.NewClient(cl)
	var wrong error // the first problem
	inspect := func(name string, delay time.Duration) error {
		o := policy.TopicOptions(cfg, name, delay, create)
		if create {
			_, _, err := topics.Ensure(ctx, adm, name, o)
			wrong = cmp.Or(wrong, err)
		}
		in, err := topics.Inspect(ctx, adm, name, o)
		if err != nil {
			return err
		}
		printTopics(out, in)
		if n := fatal(in.Checks); n > 0 && wrong == nil {
			wrong = fmt.Errorf("wrong settings of the topics of %s: %d, marked above", name, n)
		}
		return nil
	}
	for _, name := range cfg.Requests {
		if err := inspect(name, 0); err != nil {
			return err
		}
	}
	for _, d := range cfg.Delay {
		if err := inspect(d.Topic, d.Delay); err != nil {
			return err
		}
	}
	if len(cfg.Requests) > 0 {
		err = inspectCalendars(ctx, cfg, adm, create, out)
		wrong = cmp.Or(wrong, err)
	}
	return wrong
}

// inspectCalendars prints and checks the topic of calendars, which the group has if it has request topics.
func inspectCalendars(ctx context.Context, cfg *config.Config, adm *kadm.Client, create bool, out io.Writer) error {
	_, wrong := topics.EnsureCalendars(ctx, adm, cfg.Group, cfg.Requests,
		topics.Options{Create: create, Replication: int16(cfg.ReplicationFactor)})
	checks, err := topics.InspectCalendars(ctx, adm, cfg.Group, cfg.Requests)
	if err == nil {
		printTopics(out, topics.Inspection{Checks: checks})
	}
	return cmp.Or(wrong, err)
}

func fatal(checks []topics.Check) (n int) {
	for _, c := range checks {
		if !c.OK && c.Fatal {
			n++
		}
	}
	return n
}

// neededWidth is the width of the column "needed".
const neededWidth = 40

// printTopics prints a table for each topic.
func printTopics(out io.Writer, in topics.Inspection) {
	var t table.Writer
	topic := ""
	for _, c := range in.Checks {
		if c.Topic != topic {
			if t != nil {
				t.Render()
			}
			topic = c.Topic
			fmt.Fprintln(out, topic)
			t = table.NewWriter()
			t.SetOutputMirror(out)
			t.SetColumnConfigs(
				[]table.ColumnConfig{{Number: 3, WidthMax: neededWidth, WidthMaxEnforcer: text.WrapSoft}})
			t.AppendHeader(table.Row{"setting", "found", "needed", ""})
		}
		verdict := "ok"
		switch {
		case c.OK:
		case c.Fatal:
			verdict = "WRONG"
		default:
			verdict = "warning"
		}
		t.AppendRow(table.Row{c.Setting, c.Found, c.Needed, verdict})
	}
	if t != nil {
		t.Render()
	}
}

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
	// Repair adds the permissions that the service needs to write lost transaction markers.
	Repair bool
}

// ACLs prints the commands that grant a service with these settings, and its users, the permissions that they need. It
// contacts no broker.
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
		section(of+"Producers of requests", a.Producers(), o.Producers)
		section(of+"Consumers of emissions", a.Consumers(o.ConsumerGroup), o.Consumers)
		section(of+"Readers of dead letters, which hold payloads of all producers",
			a.DeadLetterReaders(o.ConsumerGroup+"-dead-letters"), o.DeadLetterReaders)
		section(of+"Readers of events, which name all timers and their targets",
			a.EventReaders(o.ConsumerGroup+"-events"), o.EventReaders)
	}
	_, err := io.WriteString(out, strings.TrimSuffix(b.String(), "\n"))
	return err
}
