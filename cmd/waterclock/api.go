package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/waterclock/waterclock/internal/api/access"
)

func apiCommand(p *process) *cobra.Command {
	return group("api", apiUserCommand(p), apiTokenCommand(p))
}

// grantFlags are the grants of a new entry.
type grantFlags struct{ role, topic, prefix, calendar string }

func (g *grantFlags) bind(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&g.role, "role", access.Read.String(), "`ROLE`: read, write or admin; each includes those before it")
	fs.StringVar(&g.topic, "topic", "*", "request topics: `NAME`, the beginning of names and a *, or * for all")
	fs.StringVar(&g.prefix, "id-prefix", "", "only timers whose IDs begin with `PREFIX` (default: all)")
	fs.StringVar(&g.calendar, "calendar", "",
		"also calendars: `NAME`, the beginning of names and a *, or * for all; writers read them")
}

func (g *grantFlags) grants() ([]access.Grant, error) {
	role, err := access.ParseRole(g.role)
	if err != nil {
		return nil, usagef("%v", err)
	}
	grants := []access.Grant{{Role: role, Topic: g.topic, IDPrefix: g.prefix}}
	if g.calendar != "" {
		if role == access.Write {
			role = access.Read
		}
		grants = append(grants, access.Grant{Role: role, Topic: access.CalendarTopic(g.calendar)})
	}
	return grants, nil
}

// entryCommand returns a command that makes the entry of one caller.
func entryCommand(use string, run func(name string, grants []access.Grant) error) *cobra.Command {
	var f grantFlags
	cmd := &cobra.Command{Use: use, Annotations: map[string]string{takesArgs: "the name of one caller"}}
	f.bind(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := access.CheckName(args[0]); err != nil {
			return usagef("%v", err)
		}
		grants, err := f.grants()
		if err != nil {
			return err
		}
		return run(args[0], grants)
	}
	return cmd
}

func apiUserCommand(p *process) *cobra.Command {
	return entryCommand("user NAME", func(name string, grants []access.Grant) error {
		password, err := readPassword(p)
		if err != nil {
			return err
		}
		entry, err := access.PasswordEntry(name, password, grants...)
		return printEntry(p, entry, err)
	})
}

func apiTokenCommand(p *process) *cobra.Command {
	return entryCommand("token NAME", func(name string, grants []access.Grant) error {
		token := access.NewToken()
		entry, err := access.TokenEntry(name, token, grants...)
		if err := printEntry(p, entry, err); err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "token of %s, not shown again: %s\n", name, token)
		return nil
	})
}

// printEntry prints an entry, or returns the reason why there is none.
func printEntry(p *process, entry []byte, err error) error {
	if err != nil {
		return usagef("%v", err)
	}
	_, err = p.stdout.Write(entry)
	return err
}

// readPassword asks for a password at a terminal. Otherwise it reads the first line.
func readPassword(p *process) ([]byte, error) {
	f := terminal(p.stdin)
	if f == nil {
		return passwordLine(p.stdin)
	}
	first, err := readHidden(p, f, "password: ")
	if err != nil {
		return nil, err
	}
	second, err := readHidden(p, f, "again: ")
	if err == nil && !bytes.Equal(first, second) {
		err = errors.New("the passwords differ")
	}
	return first, err
}

func readHidden(p *process, f *os.File, prompt string) ([]byte, error) {
	fmt.Fprint(p.stderr, prompt)
	password, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(p.stderr)
	if err != nil {
		return nil, fmt.Errorf("read password: %w", err)
	}
	return password, nil
}

// passwordLine reads the first line of the input. It reads somewhat more than the longest password, so that a longer
// one is rejected.
func passwordLine(in io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, 4*access.MaxPassword))
	if err != nil {
		return nil, fmt.Errorf("read password: %w", err)
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), nil
}
