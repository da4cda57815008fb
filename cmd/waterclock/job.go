package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/client"
)

const (
	// jobLook is the interval at which a job's progress is read; jobMissing is how often in a row that may fail.
	jobLook    = 500 * time.Millisecond
	jobMissing = 20
	// stopTimeout limits how long an interrupted command tries to stop its job.
	stopTimeout = 5 * time.Second
)

// job is a command that steers all timers selected by a filter, over the HTTP API.
type job struct {
	asking
	filter
	confirmation
	all, dryRun bool
	rate        int
}

// filterFlags has the flags that make a command a job.
var filterFlags = []string{"prefix", "target", "state", "due-after", "due-before", "all", "dry-run"}

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
	q, err := j.query()
	if err != nil {
		return err
	}
	chosen := len(q) > 0
	if !chosen {
		q.Set("all", "true")
	}
	started, c, err := j.start(cmd, starting{
		action: action, path: client.Timers(topic, action), q: q, chosen: chosen,
		nothingChosen: fmt.Sprintf("no filter chooses timers: use --all if you mean all timers of topic %s", topic),
		confirm:       func(c *client.Client) error { return j.confirmTimers(cmd.Context(), c, action, topic, q) },
	})
	if err != nil {
		return err
	}
	if n := started.Matching; n != nil {
		return j.print(n, func() string { return fmt.Sprintf("%s would affect %s pending timers", action, countOf(n)) })
	}
	return j.finish(cmd, c, action, started.Job)
}

// starting holds the arguments of a job's start.
type starting struct {
	action, path  string
	q             url.Values // the filter, and further parameters of the API
	chosen        bool       // there is a filter
	nothingChosen string     // the error if there is none
	confirm       func(*client.Client) error
}

// start starts a job once it is confirmed or, with --dry-run, asks for its effect.
func (j *job) start(cmd *cobra.Command, s starting) (started api.JobStarted, c *client.Client, err error) {
	switch {
	case !s.chosen && !j.all && !j.dryRun:
		return started, nil, usagef("%s", s.nothingChosen)
	case s.chosen && j.all:
		return started, nil, usagef("--all and a filter exclude each other")
	}
	if !j.dryRun {
		if err = j.confirmation.must(j.p, s.action); err != nil {
			return started, nil, err
		}
	}
	if c, err = j.client(); err != nil {
		return started, nil, err
	}
	if !j.dryRun {
		if err = s.confirm(c); err != nil {
			return started, nil, err
		}
	}
	// Only now: the confirmation lists with the same parameters, and a list knows neither of these.
	s.q.Set("dry-run", strconv.FormatBool(j.dryRun))
	s.q.Set("rate", strconv.Itoa(j.rate))
	err = c.Call(cmd.Context(), http.MethodPost, s.path, s.q, &started)
	if err == nil && started.Job == nil && started.Matching == nil && started.Letters == nil {
		err = errors.New("the API's response has neither a job nor a number")
	}
	return started, c, err
}

// finish waits for the end of a job and prints the result.
func (j *job) finish(cmd *cobra.Command, c *client.Client, action string, started *api.Job) error {
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
	case end.State != "done":
		err = fmt.Errorf("the job %s is %s: %s", end.ID, end.State, end.Problem)
	case end.Failure != "":
		err = fmt.Errorf("%d of %d failed, the first because of %s", end.Failed, end.Seen, end.Failure)
	case end.Failed > 0:
		err = fmt.Errorf("%d of %d failed", end.Failed, end.Seen)
	}
	return err
}

// progress returns a line about a running job: its progress, and the reason why it waits.
func progress(job *api.Job) string {
	line := fmt.Sprintf("%d seen, %d changed", job.Seen, job.Changed)
	if job.Problem != "" {
		line += "; " + job.Problem
	}
	return line
}

// await follows a job to its end.
func (j *job) await(ctx context.Context, c *client.Client, show *api.Job) (*api.Job, error) {
	path := "/v1/jobs/" + url.PathEscape(show.ID)
	for missing := 0; show.State == "running"; {
		select {
		case <-ctx.Done():
			stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
			defer cancel()
			if err := c.Call(stop, http.MethodDelete, path, nil, nil); err != nil {
				return nil, fmt.Errorf("interrupted, but the job %s could not be stopped and goes on: %w", show.ID, err)
			}
			return nil, fmt.Errorf("interrupted: the job %s is stopped; %d timers were changed by then", show.ID,
				show.Changed)
		case <-time.After(jobLook):
		}
		var now api.Job
		err := c.Call(ctx, http.MethodGet, path, nil, &now)
		var refused *client.Problem
		switch {
		case err == nil:
			missing, show = 0, &now
			if now.State == "running" && !j.json {
				fmt.Fprintln(j.p.stderr, progress(&now))
			}
		case ctx.Err() != nil:
		case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
			return nil, fmt.Errorf("the instance that had the job %s has ended, and the job with it: start it again",
				show.ID)
		default:
			if missing++; missing > jobMissing {
				return nil, fmt.Errorf("the API no longer knows the job %s: %w", show.ID, err)
			}
		}
	}
	return show, nil
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
func (j *job) confirmTimers(ctx context.Context, c *client.Client, action, topic string, q url.Values) error {
	if j.yes {
		return nil
	}
	var found api.JobStarted
	err := c.Call(ctx, http.MethodPost, client.Timers(topic, action), with(q, "dry-run", "true"), &found)
	if err != nil {
		return err
	}
	n := found.Matching
	if n == nil {
		return errors.New("the API did not return how many timers match")
	}
	if n.Exact && n.Count == 0 {
		return errors.New("no timer matches: nothing has changed")
	}
	var list api.TimerList
	few := with(q, "limit", strconv.Itoa(confirmExamples), "order", "due")
	few.Del("all")
	if err := c.Call(ctx, http.MethodGet, client.Timers(topic), few, &list); err != nil {
		return err
	}
	var lines []string
	for _, t := range list.Timers {
		lines = append(lines, fmt.Sprintf("%s\t%s\tdue %s\t%s",
			idOf(t), client.Printable(t.State), relative(time.Until(t.Due)), targetOf(&t.Target)))
	}
	if err := j.examples(lines, !n.Exact || n.Count > int64(len(lines))); err != nil {
		return err
	}
	return ask(ctx, j.p, fmt.Sprintf("%s %s timers of topic %s?", action, countOf(n), topic))
}

// confirmLetters asks whether a resend of all dead letters that a filter chooses is meant.
func (j *job) confirmLetters(ctx context.Context, c *client.Client, q url.Values) error {
	if j.yes {
		return nil
	}
	var found api.JobStarted
	err := c.Call(ctx, http.MethodPost, lettersOf(j.topic)+"/resend", with(q, "dry-run", "true"), &found)
	if err != nil {
		return err
	}
	m := found.Letters
	if m == nil {
		return errors.New("the API did not return how many dead letters match")
	}
	if m.Exact && m.Count == 0 {
		return errors.New("no dead letter matches: nothing is sent")
	}
	few := with(q, "limit", strconv.Itoa(confirmExamples))
	few.Del("replace")
	var list api.DeadLetterList
	if err := c.Call(ctx, http.MethodGet, lettersOf(j.topic), few, &list); err != nil {
		return err
	}
	fmt.Fprintln(j.p.stderr, previewOf(m))
	var lines []string
	for i := range list.DeadLetters {
		d := &list.DeadLetters[i]
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s",
			d.At.Format(time.RFC3339), textOf(d.ID, d.IDBase64), textOf(&d.Reason, nil)))
	}
	if err := j.examples(lines, !m.Exact || m.Count > int64(len(lines))); err != nil {
		return err
	}
	return ask(ctx, j.p, fmt.Sprintf("resend the dead letters of topic %s?", j.topic))
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

// with returns a copy of a query with more parameters.
func with(q url.Values, namesAndValues ...string) url.Values {
	more := url.Values{}
	for name, values := range q {
		more[name] = values
	}
	for i := 0; i < len(namesAndValues); i += 2 {
		more.Set(namesAndValues[i], namesAndValues[i+1])
	}
	return more
}
