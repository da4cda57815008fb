package main

import (
	"bufio"
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

// run starts a job, after a confirmation, and waits for its end. An interrupt stops it.
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
	chosen := f != client.Filter{}
	c, err := j.prepare(action, chosen,
		fmt.Sprintf("no filter chooses timers: use --all if you mean all timers of topic %s", topic))
	if err != nil {
		return err
	}
	if j.dryRun {
		n, err := c.CountJob(cmd.Context(), topic, client.Action(action), f)
		if err != nil {
			return err
		}
		return j.print(n, func() string {
			return fmt.Sprintf("%s would affect %s pending timers", action, countOf(&n))
		})
	}
	if err := j.confirmTimers(cmd.Context(), c, action, topic, f); err != nil {
		return err
	}
	o := j.options
	o.All, o.Rate = j.all, j.rate
	started, err := c.StartJob(cmd.Context(), topic, client.Action(action), f, o)
	if err != nil {
		return err
	}
	return j.finish(cmd, c, action, started)
}

// prepare returns a client for a job, if the command line selects timers: chosen reports that there is a filter.
// Without it the error is nothingChosen.
func (j *job) prepare(action string, chosen bool, nothingChosen string) (*client.Client, error) {
	switch {
	case !chosen && !j.all && !j.dryRun:
		return nil, usagef("%s", nothingChosen)
	case chosen && j.all:
		return nil, usagef("--all and a filter exclude each other")
	case !j.dryRun:
		if err := j.confirmation.must(j.p, action); err != nil {
			return nil, err
		}
	}
	return j.client()
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

// rest says how to have the rest of a job done that moves timers: repeated as it is, it might move some twice.
func rest(job *client.Job) string {
	if job.Position == "" {
		return ""
	}
	return "; --unchanged-since " + job.Position + " moves the others"
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
			show.Changed, rest(show))
	case errors.Is(err, client.ReasonNotFound):
		return nil, fmt.Errorf("the instance that had the job %s has ended, and the job with it: start it again%s",
			show.ID, rest(show))
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

// confirmTimers asks whether an action on all timers that a filter chooses is meant.
func (j *job) confirmTimers(ctx context.Context, c *client.Client, action, topic string, f client.Filter) error {
	if j.yes {
		return nil
	}
	n, err := c.CountJob(ctx, topic, client.Action(action), f)
	if err != nil {
		return err
	}
	if n.Exact && n.N == 0 {
		return errors.New("no timer matches: nothing has changed")
	}
	lines, err := some(c.List(ctx, topic, f, client.PageSize(confirmExamples)), func(t *client.Timer) string {
		return fmt.Sprintf("%s\t%s\tdue %s\t%s", shown(t.ID), client.Printable(string(t.State)),
			relative(time.Until(t.Due)), targetOf(&t.Target))
	})
	if err != nil {
		return err
	}
	if err := j.examples(lines, !n.Exact || n.N > int64(len(lines))); err != nil {
		return err
	}
	return ask(ctx, j.p, fmt.Sprintf("%s %s timers of topic %s?", action, countOf(&n), topic))
}

// confirmLetters asks whether a resend of all dead letters that a filter chooses is meant.
func (j *job) confirmLetters(ctx context.Context, c *client.Client, l client.Letters, o client.ResendOptions) error {
	if j.yes {
		return nil
	}
	m, err := c.CountResend(ctx, j.topic, l, o)
	if err != nil {
		return err
	}
	if m.Exact && m.N == 0 {
		return errors.New("no dead letter matches: nothing is sent")
	}
	lines, err := some(c.DeadLetters(ctx, j.topic, l, client.PageSize(confirmExamples)),
		func(d *client.DeadLetter) string {
			return fmt.Sprintf("%s\t%s\t%s", d.At.Format(time.RFC3339), letterID(d), shown(d.Reason))
		})
	if err != nil {
		return err
	}
	fmt.Fprintln(j.p.stderr, previewOf(&m))
	if err := j.examples(lines, !m.Exact || m.N > int64(len(lines))); err != nil {
		return err
	}
	return ask(ctx, j.p, fmt.Sprintf("resend the dead letters of topic %s?", j.topic))
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
