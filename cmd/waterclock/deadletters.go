package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kit/suggest"
)

// lettersPage is the number of dead letters per call.
const lettersPage = 100

func deadLettersCommand(p *process) *cobra.Command {
	return group("dead-letters", lettersListCommand(p), lettersCountCommand(p), lettersResendCommand(p),
		lettersReviewCommand(p))
}

// letterFlags holds the flags that select dead letters.
type letterFlags struct {
	reason, prefix, since, before string
	fresh, reviewed               bool
	labels                        labels
}

func (l *letterFlags) flags(fs *pflag.FlagSet) {
	fs.StringVar(&l.reason, "reason", "", "only those with that `REASON`, such as bad-cron")
	fs.StringVar(&l.prefix, "prefix", "", "only those of IDs that begin with `TEXT`")
	l.labels.flag(fs)
	fs.StringVar(&l.since, "since", "",
		"only those written then or later: `TIME`, RFC 3339 with a zone, or how long ago, such as 10m")
	fs.StringVar(&l.before, "before", "", "only those written before `TIME`")
	fs.BoolVar(&l.fresh, "new", false, "only those that have been neither reviewed nor sent again")
	fs.BoolVar(&l.reviewed, "reviewed", false, "only those that have been reviewed, or sent again")
}

// note warns of a reason that this version does not know. The command goes on, because the service may be newer.
func (l *letterFlags) note(w io.Writer) {
	known := plain(waterclock.Reasons()...)
	if l.reason == "" || slices.Contains(known, l.reason) {
		return
	}
	fmt.Fprintf(w, "note: this version of waterclock does not know the --reason %q%s\n", l.reason,
		suggest.Hint(l.reason, "", known))
}

// read returns the filter as the client takes it.
func (l *letterFlags) read() (out client.Letters, err error) {
	out = client.Letters{Reason: waterclock.Reason(l.reason), Prefix: l.prefix}
	switch {
	case l.fresh && l.reviewed:
		return out, usagef("--new and --reviewed exclude each other")
	case l.fresh || l.reviewed:
		out.Reviewed = &l.reviewed
	}
	if out.Labels, err = l.labels.read(); err != nil {
		return out, err
	}
	const ago = "how long ago, as in 10m"
	if out.After, err = timeOf("since", l.since, -1, ago); err != nil {
		return out, err
	}
	out.Before, err = timeOf("before", l.before, -1, ago)
	return out, err
}

func lettersListCommand(p *process) *cobra.Command {
	a := asking{p: p}
	var f letterFlags
	cmd := &cobra.Command{Use: "list"}
	a.topicFlags(cmd)
	f.flags(cmd.Flags())
	a.limitFlag(cmd.Flags(), "dead letters")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		chosen, err := f.read()
		if err != nil {
			return err
		}
		f.note(p.stderr)
		c, size, err := a.lists(lettersPage)
		if err != nil {
			return err
		}
		letters := c.DeadLetters(cmd.Context(), a.topic, chosen, client.PageSize(size))
		return showAll(&a, "AT\tLETTER\tID\tREASON\tDETAIL", letters, func(d *client.DeadLetter) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", d.At.Format(time.RFC3339), d.LetterID, letterID(d),
				shown(d.Reason), shown(d.Detail))
		})
	}
	return cmd
}

// letterID returns the timer's ID of a dead letter; there may be none.
func letterID(d *client.DeadLetter) string { return cmp.Or(shown(d.ID), `""`) }

func lettersCountCommand(p *process) *cobra.Command {
	a := asking{p: p}
	cmd := &cobra.Command{Use: "count"}
	a.flags(cmd.Flags())
	cmd.Flags().StringVar(&a.topic, "topic", "", "only those of `TOPIC` (default: of all that may be read)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q := make(url.Values)
		if a.topic != "" {
			q.Set("topic", a.topic)
		}
		var all api.DeadLetterCountList
		if err := a.get(cmd, "/v1/dead-letters", q, &all); err != nil || a.json {
			return err
		}
		tw := newTable(p.stdout)
		fmt.Fprintln(tw, "TOPIC\tREASON\tNEW\tLAST HOUR\tLAST DAY\tNEWEST")
		var failed []string
		for i := range all.Topics {
			t := &all.Topics[i]
			more := "+"
			if t.Exact {
				more = ""
			}
			fmt.Fprintf(tw, "%s\tall\t%s\t%d%s\t%d%s\t\n", t.Topic, newOf(t.New, ""), t.LastHour, more, t.LastDay, more)
			for _, r := range t.Reasons {
				fmt.Fprintf(tw, "%s\t%s\t%s\t%d%s\t%d%s\t%s\n", t.Topic, shown(r.Reason), newOf(t.New, r.Reason),
					r.LastHour, more, r.LastDay, more, r.Newest.Format(time.RFC3339))
			}
			for _, reason := range olderReasons(t) {
				fmt.Fprintf(tw, "%s\t%s\t%s\t0%s\t0%s\t\n", t.Topic, shown(reason), newOf(t.New, reason), more,
					more)
			}
			if t.Problem != "" {
				failed = append(failed, t.Topic+": "+t.Problem)
			}
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		if slices.ContainsFunc(all.Topics,
			func(t api.DeadLetterCounts) bool { return t.New == nil && t.Problem == "" }) {
			fmt.Fprintln(p.stderr, "note: - in column NEW: nothing of the topic has been reviewed yet, so all are new")
		}
		if len(failed) > 0 {
			return fmt.Errorf("not all could be counted: %s", strings.Join(failed, "; "))
		}
		return nil
	}
	return cmd
}

// olderReasons returns the reasons that only new dead letters of more than a day ago have.
func olderReasons(t *api.DeadLetterCounts) []string {
	if t.New == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.New.Reasons)), func(reason string) bool {
		return slices.ContainsFunc(t.Reasons, func(r api.ReasonCount) bool { return r.Reason == reason })
	})
}

// newOf returns the number of new dead letters with a reason or, if it is empty, with any.
func newOf(n *api.NewLetters, reason string) string {
	if n == nil {
		return "-"
	}
	count := n.Count
	if reason != "" {
		count = n.Reasons[reason]
	}
	if n.Exact {
		return strconv.FormatInt(count, 10)
	}
	return strconv.FormatInt(count, 10) + "+"
}

func lettersResendCommand(p *process) *cobra.Command {
	j := job{asking: asking{p: p}}
	var f letterFlags
	var replace bool
	cmd := &cobra.Command{
		Use:               "resend [PARTITION/OFFSET]",
		ValidArgsFunction: cobra.NoFileCompletions,
		Annotations:       map[string]string{takesArgs: ""},
	}
	fs := cmd.Flags()
	j.topicFlags(cmd)
	f.flags(fs)
	j.confirmation.flag(fs)
	fs.BoolVar(&j.all, "all", false, "all dead letters of the topic")
	fs.BoolVar(&j.dryRun, "dry-run", false, "only count the dead letters, by reason")
	fs.BoolVar(&replace, "replace", false, "replace a pending timer of the same ID")
	fs.IntVar(&j.rate, "rate", 1000, "write `N` requests a second at most")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l, err := f.read()
		if err != nil {
			return err
		}
		chosen := l != client.Letters{}
		if len(args) > 0 {
			if chosen || j.all || j.dryRun || replace {
				return usagef("one dead letter is named: leave out the flags that are for many")
			}
			return j.resendOne(cmd, args)
		}
		f.note(p.stderr)
		l.Reviewed = &f.reviewed
		o := client.ResendOptions{JobOptions: client.JobOptions{All: j.all, Rate: j.rate}, Replace: replace}
		return j.start(cmd, &bulk{
			action: "resend", chosen: chosen, none: "no dead letter matches: nothing is sent",
			nothing: fmt.Sprintf("no filter chooses dead letters: use --all if you mean all of topic %s", j.topic),
			count: func(ctx context.Context, c *client.Client) (counted, error) {
				m, err := c.CountResend(ctx, j.topic, l, o)
				words := previewOf(&m)
				return counted{m.N, m.Exact, m, words, words + "\n",
					fmt.Sprintf("resend the dead letters of topic %s?", j.topic)}, err
			},
			some: func(ctx context.Context, c *client.Client) ([]string, error) {
				return some(c.DeadLetters(ctx, j.topic, l, client.PageSize(confirmExamples)),
					func(d *client.DeadLetter) string {
						return fmt.Sprintf("%s\t%s\t%s", d.At.Format(time.RFC3339), letterID(d), shown(d.Reason))
					})
			},
			run: func(ctx context.Context, c *client.Client) (*client.Job, error) {
				return c.ResendAll(ctx, j.topic, l, o)
			},
		})
	}
	return cmd
}

// resendOne sends the request of a dead letter again.
func (j *job) resendOne(cmd *cobra.Command, args []string) error {
	at, err := oneLetter(args)
	if err != nil {
		return err
	}
	c, err := j.client()
	if err != nil {
		return err
	}
	done, err := c.Resend(cmd.Context(), j.topic, at, nil)
	if err != nil {
		return err
	}
	return j.print(&done, func() string {
		return fmt.Sprintf("dead letter %s: %s by the request at %s", at, client.Printable(string(done.Outcome)),
			done.Source)
	})
}

// previewOf describes in words what a resend would send.
func previewOf(m *client.LetterCount) string {
	more := " at least"
	if m.Exact {
		more = ""
	}
	text := fmt.Sprintf("%d%s dead letters would be sent again", m.N-m.NotWhole, more)
	if m.NotWhole > 0 {
		text += fmt.Sprintf(", and %d%s not, because a part of them is gone", m.NotWhole, more)
	}
	for _, reason := range slices.SortedFunc(maps.Keys(m.Reasons), func(x, y waterclock.Reason) int {
		return cmp.Or(cmp.Compare(m.Reasons[y], m.Reasons[x]), cmp.Compare(x, y))
	}) {
		text += fmt.Sprintf("\n  %s: %d%s", shown(reason), m.Reasons[reason], more)
	}
	return text
}
