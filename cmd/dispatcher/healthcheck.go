package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/job"
)

// healthTime bounds the request. It is within the 5 s that a container engine allows, and longer than run
// itself waits for a hanging Redis, so that run's answer arrives.
const healthTime = 4 * time.Second

func healthcheckCommand(p *program) *cobra.Command {
	var listen string
	var ready bool
	cmd := &cobra.Command{
		Use: "healthcheck [--ready] [--listen ADDRESS]", Short: "Check that the dispatcher on this machine is alive, or ready",
		Long: `Healthcheck probes the "dispatcher run" on this machine or in this container: whether it is alive
(/healthz), or with --ready whether it can work (/readyz: Redis answers, its machine can call the gateways,
and it is not stopping). It is the health check for a container image without a shell. Exit code 0: yes; 1:
it answers no; 5: no answer.`,
		Example: "  dispatcher healthcheck\n  dispatcher healthcheck --ready --listen 127.0.0.1:9401",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("listen") {
				cfg, err := p.load(false)
				if err != nil {
					return err
				}
				listen = cfg.Listen
			}
			return p.healthcheck(cmd.Context(), listen, ready)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "the `ADDRESS` that run listens on (default: the file's)")
	cmd.Flags().BoolVar(&ready, "ready", false, "also check whether it can work")
	return cmd
}

func (p *program) healthcheck(ctx context.Context, listen string, ready bool) error {
	at, err := within(listen)
	if err != nil {
		return err
	}
	path := "/healthz"
	if ready {
		path = "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+path, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req) // no proxy: it is this machine
	if err != nil {
		return &job.Error{Code: job.CodeUnavailable, Message: "no answer from " + at, Err: err, Hint: "is run started, and with this --listen?"}
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("%s at %s answers %d", path, at, resp.StatusCode), Hint: "its log says why"}
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, map[string]any{"listen": at, "path": path, "ok": true})
	}
	_, err = fmt.Fprintln(p.Out, "ok")
	return err
}

// within returns the address of a run on this machine, given its --listen: if that is every address, loopback.
func within(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	switch {
	case listen == "":
		return "", cli.Usage("give run a listen address, and this the same: --listen 127.0.0.1:9400", "run serves nothing that could be asked")
	case err != nil:
		return "", cli.Usage("write host:port, like 127.0.0.1:9400", "--listen %q is not an address", listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port), nil
}
