package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/job"
)

func configCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show the configuration", Example: "  dispatcher config show -g stripe"}
	cmd.AddCommand(configShowCommand(p))
	return cmd
}

func configShowCommand(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "show [-g GATEWAY]...", Short: "Print gateways with all their configured keys",
		Long: `Show prints each gateway with the defaults, its template, its own keys and its line of a merchants file
merged. Keys that none of them has are left out: their defaults apply. Variables are shown by name, and
secrets as <secret>.`,
		Example: "  dispatcher config show -g bike-world\n  dispatcher config show -o json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return p.showConfig(names) },
	}
	gatewaysFlag(cmd, &names, "show this `GATEWAY` only; repeatable (default: all of the file)")
	return cmd
}

func (p *program) showConfig(names []string) error {
	cfg, err := p.load(false)
	if err != nil {
		return err
	}
	if _, err := desk.Choose(cfg, names); err != nil {
		return err
	}
	document, err := config.Written(p.Config, names)
	if err != nil {
		return cli.CodeEach(job.CodeUsage, "", err)
	}
	if p.JSON() {
		if document, err = config.AsJSON(document); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(p.Out, strings.TrimSpace(string(document)))
	return err
}
