package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
)

const (
	// healthTimeout is for how long health waits for an answer.
	healthTimeout = 3 * time.Second
	// maxHealth are the bytes of an answer that are printed.
	maxHealth = 1 << 20
	// drainWithin is how long an instance may take to hand over, and drainAnswer how long it may take beside that to
	// leave and to answer.
	drainWithin, drainAnswer = 30 * time.Second, 30 * time.Second
)

func healthCommand(p *process) *cobra.Command {
	var address string
	var ready bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "ask an instance on this machine whether it runs",
		Long: `health asks the address of --http for /healthz, or with --ready for /readyz, whose
answer it prints: it says what the instance waits for. It exits 0 if the answer is
200, and else 1. It is for containers, which have no other program to ask with. The
instance must serve plain HTTP there, without --http-web-config.`,
		Example: `  waterclock health
  docker exec timers /waterclock health --ready`,
	}
	cmd.Flags().StringVar(&address, "http", "", "`ADDRESS` that the instance has for --http (default: "+config.EnvOf("http")+", else "+config.Default().HTTP+")")
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether it is ready, and print what it waits for")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, path := io.Discard, "/healthz"
		if ready {
			out, path = p.stdout, "/readyz"
		}
		return p.askInstance(cmd.Context(), out, http.MethodGet, address, path, healthTimeout)
	}
	return cmd
}

func drainCommand(p *process) *cobra.Command {
	var address string
	within := drainWithin
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "have an instance on this machine hand everything over, and end",
		Long: `drain has the instance behind the address of --http hand its partitions to the other
instances, leave the group and end, also with --on-stop stay: for an instance that
does not come back. With --standbys each partition goes when another instance has
caught up with it, and is served until then. It exits 0 when the instance has left the
group. The instance must serve plain HTTP there, without --http-web-config.`,
		Example: `  waterclock drain
  waterclock drain --within 5m`,
	}
	cmd.Flags().StringVar(&address, "http", "", "`ADDRESS` that the instance has for --http (default: "+config.EnvOf("http")+", else "+config.Default().HTTP+")")
	cmd.Flags().DurationVar(&within, "within", within, "after `DURATION` the instance leaves, even if others have not caught up")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.askInstance(cmd.Context(), p.stdout, http.MethodPost, address, "/leave?within="+within.String(), within+drainAnswer)
	}
	return cmd
}

// askInstance prints the answer of an instance on this machine to out; any status but 200 is an error.
func (p *process) askInstance(ctx context.Context, out io.Writer, method, address, path string, timeout time.Duration) error {
	address = cmp.Or(address, p.env(config.EnvOf("http")), config.Default().HTTP)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return usagef("--http is %q, needs host:port", address)
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	url := "http://" + net.JoinHostPort(host, port) + path
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(out, io.LimitReader(answer.Body, maxHealth)); err != nil {
		return fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return nil
}
