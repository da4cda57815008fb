// Command waterclock is the timer service: serve runs an instance, dev runs everything on one machine, the other
// sub-commands look after topics and send requests by hand. See waterclock help.
//
//	waterclock serve --brokers kafka:9092
//
// This package holds flags and wiring, one file per sub-command. The work is done by internal/node; this package
// knows neither Kafka nor the store.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	_ "time/tzdata" // rules of time zones, for machines that have none

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/node/dev"
	"github.com/waterclock/waterclock/internal/node/ops"
)

// Exit codes.
const (
	exitOK    = 0 // done; for serve and dev also a clean stop on SIGTERM
	exitError = 1
	exitUsage = 2 // bad usage or configuration: a retry will not help
	exitPart  = 3 // list and count have answered, but not for all partitions
)

func main() {
	os.Exit(run(process{
		args: os.Args[1:], environ: os.Environ(),
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		program: programName(os.Args[0]),
		backend: backend{node.RunWith, dev.Run, commands.Send, commands.Topics, commands.Repartition, commands.Audit,
			commands.Tail},
	}))
}

// process is the environment of a command.
type process struct {
	args, environ  []string
	program        string // how the user calls it
	stdin          io.Reader
	stdout, stderr io.Writer
	backend        backend
	log            *slog.Logger // set if the log is JSON: the reason why the command ended is logged there, too
	profile        string       // name of the profile that the command uses; "": none
}

// env returns an environment variable, "" if it is not set.
func (p *process) env(name string) string {
	value, _ := p.lookupEnv(name)
	return value
}

// lookupEnv returns an environment variable, and whether it is set.
func (p *process) lookupEnv(name string) (value string, set bool) {
	for _, v := range p.environ {
		if text, ok := strings.CutPrefix(v, name+"="); ok {
			value, set = text, true
		}
	}
	return value, set
}

// goRun matches where go run puts its programs: in a temporary directory, or in its cache.
var goRun = regexp.MustCompile(`/go-build(\d+)?/|/[0-9a-f]{2}/[0-9a-f]{64}-d/`)

// programName returns what the user types to start the program again. The path of a program built by go run does not
// last.
func programName(arg0 string) string {
	if goRun.MatchString(filepath.ToSlash(arg0)) {
		return "go run ./cmd/waterclock"
	}
	return arg0
}

// run executes one command line and returns the exit code. The first SIGINT or SIGTERM asks for a clean stop, the
// second one ends the process.
func run(p process) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	err := newRoot(&p).ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	text := err.Error()
	if p.log == nil {
		text = connect.Words(withRemedy(err))
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if p.log != nil {
			p.log.Error("process ended", "err", line)
			continue
		}
		fmt.Fprintf(p.stderr, "waterclock: %s%s\n", line, p.ofProfile())
	}
	switch {
	case errors.Is(err, config.ErrInvalid):
		return exitUsage
	case errors.As(err, new(*client.MissingError)):
		return exitPart
	}
	return exitError
}

// usagef returns the error of a command line that is rejected.
func usagef(format string, args ...any) error { return config.Invalid(fmt.Errorf(format, args...)) }

// backend has the functions of internal/node that tests replace. Commands call the others directly.
type backend struct {
	run    func(context.Context, *config.Config, *slog.Logger, node.Options) error
	dev    func(context.Context, dev.Options, *slog.Logger) error
	send   func(context.Context, *config.Config, commands.Request) (commands.Sent, error)
	topics func(ctx context.Context, cfg *config.Config, create bool, out io.Writer) error
	follow func(ctx context.Context, cfg *config.Config, o commands.RepartitionOptions, out io.Writer) error
	audit  func(ctx context.Context, cfg *config.Config, o commands.AuditOptions, out io.Writer) error
	tail   func(ctx context.Context, cfg *config.Config, o commands.TailOptions, out io.Writer) error
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), ops.ReadBuild())
			return err
		},
	}
}
