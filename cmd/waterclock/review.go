package main

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/api"
)

// reviewing are the flags of dead-letters review.
type reviewing struct {
	asking
	all, only    bool
	before, back string
}

func lettersReviewCommand(p *process) *cobra.Command {
	r := reviewing{asking: asking{p: p}}
	cmd := &cobra.Command{
		Use:               "review [PARTITION/OFFSET]",
		ValidArgsFunction: cobra.NoFileCompletions,
		Annotations:       map[string]string{takesArgs: ""},
	}
	r.topicFlags(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&r.all, "all", false, "all that there are now")
	fs.BoolVar(&r.only, "only", false, "only the one that is named, not those before it")
	fs.StringVar(&r.before, "before", "",
		"all written before `TIME`, RFC 3339 with a zone, or how long ago, such as 10m")
	fs.StringVar(&r.back, "back", "", "go back: letters beyond `POSITION`, as review prints it, are new again")
	cmd.RunE = r.run
	return cmd
}

// letterName is a dead letter as list prints it.
var letterName = regexp.MustCompile(`^[0-9]{1,10}/[0-9]{1,19}$`)

// oneLetter returns the dead letter that the arguments name, or an error unless they are one.
func oneLetter(args []string) (at client.LetterID, err error) {
	if len(args) != 1 || !letterName.MatchString(args[0]) {
		return at, usagef("%q is not a dead letter, needs PARTITION/OFFSET as dead-letters list prints it, as in 3/17",
			strings.Join(args, " "))
	}
	_, err = fmt.Sscanf(args[0], "%d/%d", &at.Partition, &at.Offset)
	return at, err
}

// call returns the call of the API that the command line asks for. With --all, run adds the position.
func (r *reviewing) call(cmd *cobra.Command, args []string) (method, path string, q url.Values, err error) {
	ways := len(args)
	for _, name := range []string{"all", "before", "back"} {
		if cmd.Flags().Changed(name) {
			ways++
		}
	}
	path, q = client.Path(r.topic, "dead-letters"), make(url.Values)
	switch {
	case ways > 1:
		return "", "", nil, usagef("one dead letter, --all, --before and --back exclude each other")
	case r.only && len(args) == 0:
		return "", "", nil, usagef("--only is for one dead letter, as in waterclock dead-letters review 3/17 --only")
	case ways == 0:
		return http.MethodGet, path + "/reviewed", q, nil
	case len(args) == 1:
		if _, err := oneLetter(args); err != nil {
			return "", "", nil, err
		}
		if !r.only {
			q.Set("older", "true")
		}
		return http.MethodPost, path + "/" + args[0] + "/reviewed", q, nil
	case r.back != "":
		q.Set("back", "true")
		q.Set("position", r.back)
	case r.before != "":
		var at time.Time
		at, err = timeOf("before", r.before, -1, "how long ago, as in 10m")
		q.Set("before", strconv.FormatInt(at.UnixMilli(), 10))
	}
	return http.MethodPost, path + "/reviewed", q, err
}

func (r *reviewing) run(cmd *cobra.Command, args []string) error {
	method, path, q, err := r.call(cmd, args)
	if err != nil {
		return err
	}
	c, err := r.client()
	if err != nil {
		return err
	}
	if r.all {
		var list api.DeadLetterList
		if err := c.Call(cmd.Context(), http.MethodGet, client.Path(r.topic, "dead-letters"),
			url.Values{"limit": {"1"}}, nil, &list); err != nil {
			return err
		}
		q = url.Values{"position": {list.Position}}
	}
	var done api.DeadLetterReview
	if err := c.Call(cmd.Context(), method, path, q, nil, &done); err != nil {
		return err
	}
	return r.print(done, func() string { return reviewOf(&done) })
}

// reviewOf says in words what has been reviewed.
func reviewOf(r *api.DeadLetterReview) string {
	if r.At == nil {
		return fmt.Sprintf("No dead letters of topic %s have been reviewed.", r.Topic)
	}
	text := fmt.Sprintf("Dead letters of topic %s have been reviewed up to %s", r.Topic, r.Position)
	if r.By != "" {
		text += ", last by " + shown(r.By)
	}
	text += ", at " + r.At.Format(time.RFC3339) + "."
	if r.Before != "" {
		text += fmt.Sprintf("\nUndo with: waterclock dead-letters review --topic %s --back %s", r.Topic, r.Before)
	}
	return text
}
