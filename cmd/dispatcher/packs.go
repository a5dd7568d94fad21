package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/packs"
)

func packsCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "packs", Short: "Show what is known of payment gateways",
		Long: `Packs hold what payment gateways document: where their idempotency keys stand and how long they live, what their answers mean,
what they allow. A gateway of the configuration gets all of it with one line, such as like: stripe/v1; what the configuration says itself wins.`,
		Example: "  dispatcher packs list\n  dispatcher packs show stripe/v1",
		Args:    noArgs,
	}
	cmd.AddCommand(packsListCommand(p), packsShowCommand(p))
	return cmd
}

func packsListCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the packs", Example: "  dispatcher packs list\n  dispatcher packs list -o json",
		Long: "List shows each pack with the day at which its sources were read, and how many of its values no source was found for.",
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
		Long: "Show prints the pack as its file stands: the letters behind its values are those of its sources.",
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
