package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/packs"
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

func packsCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "packs", Short: "Show the built-in knowledge of payment gateways",
		Long: `Packs contain what payment gateways document: where idempotency keys are sent and how long they live, what
answers mean, and which limits apply. One line in the configuration enables a pack, such as like: stripe/v1;
explicit settings override it.`,
		Example: "  dispatcher packs list\n  dispatcher packs show stripe/v1",
		Args:    noArgs,
	}
	cmd.AddCommand(packsListCommand(p), packsShowCommand(p))
	return cmd
}

func packsListCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the packs", Example: "  dispatcher packs list\n  dispatcher packs list -o json",
		Long: "List shows each pack with the date its sources were read, and the number of its values without a source.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return p.packsList() },
	}
}

func (p *program) packsList() error {
	var all []packs.Pack
	for _, name := range packs.Names() {
		pack, err := packs.Get(name)
		if err != nil {
			return err
		}
		all = append(all, pack)
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, map[string][]packs.Pack{"packs": all})
	}
	t := cli.NewTable(p.Streams, time.Now(), "PACK", "TITLE", "READ", "UNVERIFIED")
	for _, pack := range all {
		t.Row(cli.Uncut(pack.Name), cli.Uncut(pack.Title), pack.Read, len(pack.Unverified))
	}
	return t.Flush()
}

func packsShowCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "show PACK", Short: "Print a pack with its sources", Example: "  dispatcher packs show stripe/v1",
		Long: "Show prints the pack's file: the letters after its values refer to its sources.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return p.packsShow(args[0]) },
	}
}

func (p *program) packsShow(name string) error {
	pack, err := packs.Get(name)
	if err != nil {
		return err
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, pack)
	}
	_, err = fmt.Fprintln(p.Out, strings.TrimSpace(string(pack.Text())))
	return err
}
