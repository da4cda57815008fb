package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/timer/calendar"
	"github.com/waterclock/waterclock/internal/timer/icalendar"
)

const calendarsPath = "/v1/calendars"

func calendarsCommand(p *process) *cobra.Command {
	return group("calendars", calendarsListCommand(p), calendarsShowCommand(p), calendarsPutCommand(p),
		calendarsDeleteCommand(p), calendarsImportCommand(p))
}

// calendarCommand returns a command with some arguments, for which usage errors name the need.
func calendarCommand(a *asking, use, need string, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Annotations: map[string]string{takesArgs: need}, RunE: run}
	a.flags(cmd.Flags())
	return cmd
}

// askCalendars makes a call about one calendar, or about all.
func (a *asking) askCalendars(cmd *cobra.Command, method, name string, body json.RawMessage, out any) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	path := calendarsPath
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	var in any // a nil body would be null
	if body != nil {
		in = body
	}
	return c.Call(cmd.Context(), method, path, nil, in, out)
}

func calendarsListCommand(p *process) *cobra.Command {
	a := asking{p: p}
	cmd := &cobra.Command{Use: "list"}
	a.flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var list api.CalendarList
		if err := a.askCalendars(cmd, http.MethodGet, "", nil, &list); err != nil {
			return err
		}
		if a.json {
			return json.NewEncoder(p.stdout).Encode(list)
		}
		t := newTable(p.stdout)
		fmt.Fprintln(t, "NAME\tCHANGED\tBYTES")
		for _, c := range list.Calendars {
			fmt.Fprintf(t, "%s\t%s\t%d\n", c.Name, c.Changed.Format(time.RFC3339), c.Bytes)
		}
		return t.Flush()
	}
	return cmd
}

func calendarsShowCommand(p *process) *cobra.Command {
	a := asking{p: p}
	return calendarCommand(&a, "show NAME", "the name of one calendar", func(cmd *cobra.Command, args []string) error {
		var rules json.RawMessage
		if err := a.askCalendars(cmd, http.MethodGet, args[0], nil, &rules); err != nil {
			return err
		}
		_, err := fmt.Fprintf(p.stdout, "%s\n", rules)
		return err
	})
}

func calendarsPutCommand(p *process) *cobra.Command {
	a := asking{p: p}
	return calendarCommand(&a, "put NAME FILE", "a name and a file", func(cmd *cobra.Command, args []string) error {
		text, err := readInput(p, args[1], calendar.MaxRulesBytes)
		if err != nil {
			return err
		}
		if !json.Valid(text) {
			return usagef("%s has no rules as JSON; import takes iCalendar files", args[1])
		}
		return a.changeCalendar(cmd, http.MethodPut, args[0], text)
	})
}

// changeCalendar puts or deletes a calendar, and prints the result.
func (a *asking) changeCalendar(cmd *cobra.Command, method, name string, text []byte) error {
	var done api.CalendarResult
	if err := a.askCalendars(cmd, method, name, text, &done); err != nil {
		return err
	}
	return a.print(done, func() string { return done.Result + " " + done.Name })
}

func calendarsDeleteCommand(p *process) *cobra.Command {
	a := asking{p: p}
	remove := func(cmd *cobra.Command, args []string) error {
		return a.changeCalendar(cmd, http.MethodDelete, args[0], nil)
	}
	return calendarCommand(&a, "delete NAME", "the name of one calendar", remove)
}

// openInput opens a file, or the standard input if its name is -.
func openInput(stdin io.Reader, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	return os.Open(name)
}

// readInput reads a file, or the standard input if its name is -, of at most some bytes.
func readInput(p *process, name string, most int) ([]byte, error) {
	in, err := openInput(p.stdin, name)
	if err != nil {
		return nil, usagef("%v", err)
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, int64(most)+1))
	if err == nil && len(text) > most {
		err = usagef("%s has more than %d bytes", name, most)
	}
	return text, err
}

// importing are the flags of calendars import.
type importing struct {
	asking
	name, zone string
	years      int
	skip, dry  bool
}

const (
	importYears, maxImportYears = 10, 100
	// maxICalendar bounds a file, in bytes.
	maxICalendar = 8 << 20
)

func calendarsImportCommand(p *process) *cobra.Command {
	im := importing{asking: asking{p: p}}
	cmd := calendarCommand(&im.asking, "import FILE.ics", "one file", im.run)
	fs := cmd.Flags()
	fs.StringVar(&im.name, "name", "", "`NAME` of the calendar (default: that of the file, without .ics)")
	fs.StringVar(&im.zone, "zone", "", "time `ZONE` of the days, by its IANA name (default: that of the file)")
	fs.IntVar(&im.years, "years", importYears, fmt.Sprintf("write recurrences out for `N` years, 1 to %d", maxImportYears))
	fs.BoolVar(&im.skip, "skip", false, "leave out events that rules cannot say")
	fs.BoolVar(&im.dry, "dry-run", false, "only print the rules")
	return cmd
}

func (im *importing) run(cmd *cobra.Command, args []string) error {
	if im.name == "" {
		im.name = strings.TrimSuffix(filepath.Base(args[0]), filepath.Ext(args[0]))
	}
	if im.years < 1 || im.years > maxImportYears {
		return usagef("--years is %d, needs 1 to %d", im.years, maxImportYears)
	}
	text, err := readInput(im.p, args[0], maxICalendar)
	if err != nil {
		return err
	}
	found, err := icalendar.Read(strings.NewReader(string(text)),
		icalendar.Options{Zone: im.zone, Now: time.Now(), Years: im.years})
	if err != nil {
		return usagef("%s: %v", args[0], err)
	}
	for _, why := range found.Refused {
		fmt.Fprintf(im.p.stderr, "cannot be a rule: %s\n", why)
	}
	if n := len(found.Cut); n > 0 {
		fmt.Fprintf(im.p.stderr, "written out until %s only, import again before: %d, such as %.60q\n",
			found.Until.Format(time.DateOnly), n, found.Cut[0])
	}
	if len(found.Refused) > 0 && !im.skip {
		return usagef("%d events cannot be rules, and nothing was put; --skip leaves them out", len(found.Refused))
	}
	if _, err := found.Rules.Compile(); err != nil {
		return usagef("%s: %v", args[0], err)
	}
	rules, err := json.MarshalIndent(&found.Rules, "", "  ")
	if err != nil {
		return err
	}
	if im.dry {
		_, err := fmt.Fprintf(im.p.stdout, "%s\n", rules)
		return err
	}
	return im.changeCalendar(cmd, http.MethodPut, im.name, rules)
}
