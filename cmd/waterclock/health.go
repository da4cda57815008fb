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
		address = cmp.Or(address, p.env(config.EnvOf("http")), config.Default().HTTP)
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return usagef("--http is %q, needs host:port", address)
		}
		if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		out, path := io.Discard, "/healthz"
		if ready {
			out, path = p.stdout, "/readyz"
		}
		return askHealth(cmd.Context(), out, "http://"+net.JoinHostPort(host, port)+path)
	}
	return cmd
}

// askHealth prints the answer to out; any but 200 is an error.
func askHealth(ctx context.Context, out io.Writer, url string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
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
