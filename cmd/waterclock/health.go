package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/ops"
)

const (
	// healthTimeout limits the wait for a response.
	healthTimeout = 3 * time.Second
	// maxHealth limits the printed response, in bytes.
	maxHealth = 1 << 20
	// drainWithin limits the hand-over of an instance. It may take drainAnswer more to leave and to respond.
	drainWithin, drainAnswer = 30 * time.Second, 30 * time.Second
)

func healthCommand(p *process) *cobra.Command {
	var address string
	var ready bool
	cmd := &cobra.Command{Use: "health"}
	cmd.Flags().StringVar(&address, "http", "", addressUsage())
	cmd.Flags().BoolVar(&ready, "ready", false, "check whether it is ready, and print why not")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, path := io.Discard, "/healthz"
		if ready {
			out, path = p.stdout, "/readyz"
		}
		return p.askInstance(cmd.Context(), out, http.MethodGet, address, path, "", healthTimeout)
	}
	return cmd
}

func drainCommand(p *process) *cobra.Command {
	var address string
	var after time.Duration
	within := drainWithin
	cmd := &cobra.Command{Use: "drain"}
	dir := dataDir(p, cmd)
	cmd.Flags().StringVar(&address, "http", "", addressUsage())
	cmd.Flags().DurationVar(&after, "after", 0,
		"wait `DURATION` first, so that load balancers stop sending calls of the API here")
	cmd.Flags().DurationVar(&within, "within", within, "leave after `DURATION`, even if others have not caught up")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !beats.Sleep(cmd.Context(), after) {
			return cmd.Context().Err()
		}
		path := "/leave?within=" + within.String()
		return p.askInstance(cmd.Context(), p.stdout, http.MethodPost, address, path, *dir, within+drainAnswer)
	}
	return cmd
}

// addressUsage is the help of --http.
func addressUsage() string {
	return fmt.Sprintf("the instance's --http `ADDRESS` (default: %s, else %s, else dev's %s)",
		config.EnvOf("http"), config.Default().HTTP, config.DefaultDev().HTTP)
}

// firstListening returns the first address that takes connections; the very first if none does.
func firstListening(ctx context.Context, addresses ...string) string {
	for _, address := range addresses {
		if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address); err == nil {
			c.Close()
			return address
		}
	}
	return addresses[0]
}

// askInstance prints the response of an instance on this machine to out; any status except 200 is an error. It sends
// the token in the instance's data directory, if that is given.
func (p *process) askInstance(
	ctx context.Context, out io.Writer, method, address, path, dataDir string, timeout time.Duration,
) error {
	address = cmp.Or(address, p.env(config.EnvOf("http")))
	if address == "" {
		address = firstListening(ctx, config.Default().HTTP, config.DefaultDev().HTTP)
	}
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
	if dataDir != "" {
		err := ops.AddToken(req, dataDir)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is not the data directory of an instance that runs: name that one with "+
				"--data-dir", dataDir)
		}
		if err != nil {
			return err
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	answer, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no instance answers at %s (--http names another address): %w",
			net.JoinHostPort(host, port), errors.Unwrap(err))
	}
	defer answer.Body.Close()
	if _, err := io.Copy(out, io.LimitReader(answer.Body, maxHealth)); err != nil {
		return fmt.Errorf("read the response of %s: %w", url, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s responded with %s", url, answer.Status)
	}
	return nil
}

func statusCommand(p *process) *cobra.Command {
	a := asking{p: p}
	cmd := &cobra.Command{Use: "status"}
	a.flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var s api.Cluster
		if err := a.get(cmd, "/v1/cluster", nil, &s); err != nil {
			return err
		}
		if !a.json {
			if p.profile != "" {
				fmt.Fprintf(p.stdout, "profile %s\n\n", p.profile)
			}
			if err := showCluster(p.stdout, &s); err != nil {
				return err
			}
		}
		for i := range s.Instances {
			if in := &s.Instances[i]; in.Name == s.Asked && in.Problem != "" {
				return fmt.Errorf("instance %s is not working: %s", in.Name, in.Problem)
			}
		}
		bad, unknown := 0, 0
		for i := range s.Partitions {
			switch s.Partitions[i].State {
			case "live":
			case "unknown":
				unknown++
			default:
				bad++
			}
		}
		switch {
		case bad > 0:
			return fmt.Errorf("%d of %d partitions are not live", bad, len(s.Partitions))
		case unknown > 0:
			return fmt.Errorf("the state of %d of %d partitions is unknown: their owners could not be asked",
				unknown, len(s.Partitions))
		}
		return nil
	}
	return cmd
}
