package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
)

func topicsCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "show and check the service's topics",
		Long: `topics prints, for each request topic and fixed-delay topic, the service's own topics
for it, and checks partition counts and settings as serve does at its start. It changes
nothing. With --create it makes missing topics of the service, unless something is wrong
with the topic that they belong to.

It exits 1 if a topic is missing or a setting is wrong.`,
		Example: `  waterclock topics --brokers 127.0.0.1:9092 --requests timers
  waterclock topics --config /etc/waterclock.yaml --create`,
	}
	load := settings(p, cmd, config.Default(), (*config.Config).ValidateTopics,
		config.Client, config.Topics, config.Log)
	create := cmd.Flags().Bool("create", false, "make the service's own topics that are missing")
	cmd.RunE = configured(load, func(ctx context.Context, cfg *config.Config) error {
		return p.backend.topics(ctx, cfg, *create, p.stdout)
	})
	cmd.AddCommand(aclsCommand(p), followCommand(p))
	return cmd
}

func followCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "follow",
		Short: "move pending timers to the partitions of their IDs after a request topic has changed",
		Long: `follow moves the pending timers of a request topic after the topic got more partitions
or was recreated, or after its changelog was copied to another cluster or another name.

Stop every instance first. follow adds the partitions that the service's own topics
lack, accepts the requests that no instance has accepted, moves each timer to the
partition where requests for its ID are now, and prints how many it moved. All of this is
one transaction: if follow is killed or fails, nothing has changed, and it does nothing
twice. It needs the settings of serve, which decide whether a request is valid.

With --dry-run it only counts timers and changes nothing. Instances may run meanwhile.

With --restore it rewrites a changelog that was lost, from the data directories of
stopped instances.

It exits 1 if there was something to do and it was not done.`,
		Example: `  waterclock topics follow --config /etc/waterclock.yaml
  waterclock topics follow --brokers 127.0.0.1:9092 --requests timers --targets 'orders,mail.*'`,
	}
	load := settings(p, cmd, config.Default(), (*config.Config).ValidateACLs,
		config.Client, config.Topics, config.Instance, config.Log)
	var o commands.RepartitionOptions
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false,
		"only count the timers that would move, and those that are on the wrong partition; instances may run")
	cmd.Flags().StringSliceVar(&o.Restore, "restore", nil,
		"restore a lost changelog from the data directories of all instances: `DIRECTORY,...`")
	cmd.RunE = configured(load, func(ctx context.Context, cfg *config.Config) error {
		return p.backend.follow(ctx, cfg, o, p.stdout)
	})
	return cmd
}

func aclsCommand(p *process) *cobra.Command {
	var o commands.ACLOptions
	cmd := &cobra.Command{
		Use:   "acls",
		Short: "print the Kafka ACL commands for the service and its users",
		Long: `acls prints the kafka-acls.sh commands that give the service, producers and
consumers the rights that they need under these settings, and no more. It asks no
broker and changes nothing.

The service needs no right to the cluster itself; --repair adds one, with which it
itself writes transaction markers that a broker has lost (KAFKA-20734). A target's glob
becomes a name, a prefix or all topics, because Kafka has no other patterns.

If there are several request topics, the users of each are listed separately; --tenant
lists those of one topic only, so that each team can have principals of its own.`,
		Example: `  waterclock topics acls --brokers kafka:9092 --requests timers --targets 'orders,mail.*' \
      --principal User:waterclock --producers User:shop --consumers User:billing,User:mailer
  waterclock topics acls --config /etc/waterclock.yaml | sh
  waterclock topics acls --config /etc/waterclock.yaml --tenant timers \
      --producers User:shop --consumers User:billing`,
	}
	load := settings(p, cmd, config.Default(), (*config.Config).ValidateACLs,
		config.Client, config.Topics, config.Instance, config.Log)
	fs := cmd.Flags()
	fs.StringSliceVar(&o.Service, "principal", nil,
		"principals of the service: `PRINCIPAL,...` (default: the user that the settings log in as)")
	fs.StringSliceVar(&o.Producers, "producers", []string{"User:producer"},
		"principals that schedule and cancel: `PRINCIPAL,...`")
	fs.StringSliceVar(&o.Consumers, "consumers", []string{"User:consumer"},
		"principals that read emissions: `PRINCIPAL,...`")
	fs.StringSliceVar(&o.DeadLetterReaders, "dead-letter-consumers", []string{"User:operator"},
		"principals that read dead letters: `PRINCIPAL,...`")
	fs.StringSliceVar(&o.EventReaders, "event-consumers", []string{"User:operator"},
		"principals that read events, if there are any: `PRINCIPAL,...`")
	fs.StringVar(&o.ConsumerGroup, "consumer-group", "consumers", "consumer group `NAME` of the consumers; dead "+
		"letters are read by NAME-dead-letters, events by NAME-events")
	fs.StringVar(&o.Tenant, "tenant", "", "list only the users of the request `TOPIC`, without the service itself")
	fs.BoolVar(&o.Repair, "repair", false, "also let the service write transaction markers that a broker has lost")
	cmd.RunE = configured(load, func(_ context.Context, cfg *config.Config) error {
		for flag, principals := range map[string][]string{
			"principal": o.Service, "producers": o.Producers, "consumers": o.Consumers,
			"dead-letter-consumers": o.DeadLetterReaders, "event-consumers": o.EventReaders,
		} {
			for _, name := range principals {
				if kind, rest, ok := strings.Cut(name, ":"); !ok || kind == "" || rest == "" {
					return usagef("--%s names %q, needs TYPE:NAME, as in User:%s", flag, name, strings.Trim(name, ":"))
				}
			}
		}
		return commands.ACLs(cfg, o, p.stdout)
	})
	return cmd
}
