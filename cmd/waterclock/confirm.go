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
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/client"
)

const (
	// confirmExamples is how many timers or dead letters a question shows.
	confirmExamples = 3
	// maxReply limits the bytes that are read of a reply.
	maxReply = 100
)

// confirmation is a question that a command asks before it changes many timers: how many, some of them, y/N.
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
	return usagef("%s with a filter or --all changes many at once, and there is no terminal to ask on: "+
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
		return errors.New("the API does not say how many timers match")
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
		return errors.New("the API does not say how many dead letters match")
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
