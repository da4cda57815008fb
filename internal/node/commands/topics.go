package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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

// checkTopicRights returns an error that names the missing rights to look at topics and, with create, to create them.
func checkTopicRights(ctx context.Context, cfg *config.Config, cl *kgo.Client, create bool) error {
	var grants []topics.Grant
	for _, g := range (topics.Access{Requests: cfg.Requests, Delayed: cfg.DelayTopics(), Create: create}).Service() {
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
	var wrong error // the first thing that is wrong
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
	return wrong
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
