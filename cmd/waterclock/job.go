package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/waterclock/waterclock/client"
)

// stopTimeout limits how long an interrupted command tries to stop its job.
const stopTimeout = 5 * time.Second

// job is a command that steers all timers selected by a filter, over the HTTP API.
type job struct {
	asking
	filter
	confirmation
	all, dryRun bool
	rate        int
	options     client.JobOptions // of the action
}

// filterFlags has the flags that make a command a job.
var filterFlags = []string{"prefix", "target", "state", "due-after", "due-before", "label", "all", "dry-run"}

func (j *job) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	j.asking.flags(fs)
	j.filter.flags(fs)
	j.confirmation.flag(fs)
	fs.BoolVar(&j.all, "all", false, "all timers of the topic")
	fs.BoolVar(&j.dryRun, "dry-run", false, "only count the timers")
	fs.IntVar(&j.rate, "rate", 5000, "write `N` requests a second at most")
}

// meant reports whether the command line chooses timers by a filter.
func (j *job) meant(cmd *cobra.Command) bool {
	return slices.ContainsFunc(filterFlags, cmd.Flags().Changed)
}

// run steers all timers that the filter selects.
func (j *job) run(cmd *cobra.Command, action, topic string) error {
	for _, name := range []string{"id", "if", "wait", "partition"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is for one timer, and --prefix and the other filters are for many: use one or the "+
				"other", name)
		}
	}
	f, err := j.filter.read()
	if err != nil {
		return err
	}
	return j.start(cmd, &bulk{
		action: action, chosen: f != client.Filter{}, none: "no timer matches: nothing has changed",
		nothing: fmt.Sprintf("no filter chooses timers: use --all if you mean all timers of topic %s", topic),
		count: func(ctx context.Context, c *client.Client) (counted, error) {
			n, err := c.CountJob(ctx, topic, client.Action(action), f)
			return counted{n.N, n.Exact, n, fmt.Sprintf("%s would affect %s pending timers", action, countOf(&n)), "",
				fmt.Sprintf("%s %s timers of topic %s?", action, countOf(&n), topic)}, err
		},
		some: func(ctx context.Context, c *client.Client) ([]string, error) {
			return some(c.List(ctx, topic, f, client.PageSize(confirmExamples)), func(t *client.Timer) string {
				return fmt.Sprintf("%s\t%s\tdue %s\t%s", shown(t.ID), client.Printable(string(t.State)),
					relative(time.Until(t.Due)), targetOf(&t.Target))
			})
		},
		run: func(ctx context.Context, c *client.Client) (*client.Job, error) {
			o := j.options
			o.All, o.Rate = j.all, j.rate
			return c.StartJob(ctx, topic, client.Action(action), f, o)
		},
	})
}

// bulk is what a job changes, and how it is started.
type bulk struct {
	action  string
	chosen  bool   // there is a filter
	nothing string // the error if there is neither a filter nor --all
	none    string // the error if nothing matches
	count   func(context.Context, *client.Client) (counted, error)
	some    func(context.Context, *client.Client) ([]string, error) // a line for each of a few that match
	run     func(context.Context, *client.Client) (*client.Job, error)
}

// counted is the number of what a job would change.
type counted struct {
	n        int64
	exact    bool   // false: there are at least n
	answer   any    // of the API
	words    string // the answer in words
	before   string // comes before the question
	question string
}

// start starts a job, after a confirmation, and waits for its end. An interrupt stops it. With --dry-run it only
// counts.
func (j *job) start(cmd *cobra.Command, b *bulk) error {
	switch {
	case !b.chosen && !j.all && !j.dryRun:
		return usagef("%s", b.nothing)
	case b.chosen && j.all:
		return usagef("--all and a filter exclude each other")
	case !j.dryRun:
		if err := j.confirmation.must(j.p, b.action); err != nil {
			return err
		}
	}
	c, err := j.client()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if j.dryRun || !j.yes {
		n, err := b.count(ctx, c)
		switch {
		case err != nil:
			return err
		case j.dryRun:
			return j.print(n.answer, func() string { return n.words })
		case n.exact && n.n == 0:
			return errors.New(b.none)
		}
		lines, err := b.some(ctx, c)
		if err != nil {
			return err
		}
		fmt.Fprint(j.p.stderr, n.before)
		if err := j.examples(lines, !n.exact || n.n > int64(len(lines))); err != nil {
			return err
		}
		if err := ask(ctx, j.p, n.question); err != nil {
			return err
		}
	}
	started, err := b.run(ctx, c)
	if err != nil {
		return err
	}
	if started.Position != "" && !j.json {
		fmt.Fprintf(j.p.stderr, "job %s has begun%s\n", started.ID, rest(started, "; if it does not finish, "))
	}
	return j.finish(cmd, c, b.action, started)
}

// finish waits for the end of a job and prints the result.
func (j *job) finish(cmd *cobra.Command, c *client.Client, action string, started *client.Job) error {
	end, err := j.await(cmd.Context(), c, started)
	if err != nil {
		return err
	}
	err = j.print(end, func() string {
		return fmt.Sprintf("%s %s: %d changed, %d spared, %d failed, of %d seen", action, end.State, end.Changed,
			end.Spared, end.Failed, end.Seen)
	})
	switch {
	case err != nil:
	case end.State != client.JobDone:
		err = fmt.Errorf("the job %s is %s: %s", end.ID, end.State, end.Problem)
	case end.Failure != "":
		err = fmt.Errorf("%d of %d failed, the first because of %s", end.Failed, end.Seen, end.Failure)
	case end.Failed > 0:
		err = fmt.Errorf("%d of %d failed", end.Failed, end.Seen)
	}
	return err
}

// progress returns a line about a running job: its progress, and the reason why it waits.
func progress(job *client.Job) string {
	line := fmt.Sprintf("%d seen, %d changed", job.Seen, job.Changed)
	if job.Problem != "" {
		line += "; " + job.Problem
	}
	return line
}

// rest returns a hint on how to continue a job that moves timers, with before in front of it. Simply repeated, the job
// could move some twice. It is empty for other jobs.
func rest(job *client.Job, before string) string {
	if job.Position == "" {
		return ""
	}
	return before + "the same command with --unchanged-since " + job.Position + " moves the others"
}

// await follows a job to its end.
func (j *job) await(ctx context.Context, c *client.Client, started *client.Job) (*client.Job, error) {
	show, err := c.WaitJob(ctx, started, func(now *client.Job) {
		if !j.json {
			fmt.Fprintln(j.p.stderr, progress(now))
		}
	})
	switch {
	case err == nil:
		return show, nil
	case ctx.Err() != nil:
		stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if _, err := c.StopJob(stop, show.ID); err != nil {
			return nil, fmt.Errorf("interrupted, but the job %s could not be stopped and goes on: %w", show.ID, err)
		}
		return nil, fmt.Errorf("interrupted: the job %s is stopped; %d timers were changed by then%s", show.ID,
			show.Changed, rest(show, "; "))
	case errors.Is(err, client.ReasonNotFound):
		return nil, fmt.Errorf("the instance that had the job %s has ended, and the job with it: %s",
			show.ID, cmp.Or(rest(show, ""), "start it again"))
	}
	return nil, fmt.Errorf("the API no longer knows the job %s: %w", show.ID, err)
}

const (
	// confirmExamples is the number of timers or dead letters in a confirmation.
	confirmExamples = 3
	// maxReply limits the length of a reply, in bytes.
	maxReply = 100
)

// confirmation asks before a command changes many timers: how many, some of them, y/N.
type confirmation struct {
	yes bool // --yes: do not ask
}

func (c *confirmation) flag(fs *pflag.FlagSet) {
	fs.BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation: needed if no terminal can be asked")
}

// terminal returns the file that is the terminal behind a stream; nil if there is none.
func terminal(stream any) *os.File {
	if f, ok := stream.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// must returns an error if the command has to ask and cannot. action is the command's name.
func (c *confirmation) must(p *process, action string) error {
	if c.yes || terminal(p.stdin) != nil && terminal(p.stderr) != nil {
		return nil
	}
	return usagef("%s with a filter or --all is a bulk change, and there is no terminal for a confirmation: "+
		"use --yes to confirm, or --dry-run to count first", action)
}

// ask shows a question on the terminal and reads the reply. It returns nil if the reply is yes.
func ask(ctx context.Context, p *process, question string) error {
	fmt.Fprintf(p.stderr, "%s [y/N] ", question)
	reply := make(chan string, 1)
	go func() { // ends with the process: a read from a terminal cannot be interrupted
		line, _ := bufio.NewReader(io.LimitReader(p.stdin, maxReply)).ReadString('\n')
		reply <- line
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(p.stderr)
		return errors.New("interrupted: nothing has changed")
	case line := <-reply:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errors.New("not confirmed: nothing has changed")
	}
}

// some returns a line for each of the first items.
func some[T any](items iter.Seq2[T, error], line func(T) string) (lines []string, err error) {
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		if lines = append(lines, line(item)); len(lines) == confirmExamples {
			break
		}
	}
	return lines, nil
}

// examples shows some of the timers or dead letters that a job would change. more says that there are others.
func (j *job) examples(lines []string, more bool) error {
	tw := newTable(j.p.stderr)
	for _, line := range lines {
		fmt.Fprintln(tw, "  "+line)
	}
	if more && len(lines) > 0 {
		fmt.Fprintln(tw, "  ...")
	}
	return tw.Flush()
}
