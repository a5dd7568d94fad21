package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func processesCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "processes", Short: "List the running dispatchers, their versions and last calls",
		Long: `Processes lists the dispatchers ("dispatcher run") on this Redis: their start, version, gateways and HTTP
address, how many calls they have made, and the last call. A process that was killed, or can't reach Redis,
is silent; it is removed after six hours. A process that was stopped is not listed.`,
		Example: "  dispatcher processes\n  dispatcher processes -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.processes(cmd.Context()) },
	}
}

func (p *program) processes(ctx context.Context) error {
	all, err := ask(ctx, p, remote.Processes, remote.None{})
	if err != nil {
		return err
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, all)
	}
	return p.processTable(all)
}

func (p *program) processTable(all desk.Processes) error {
	t := cli.NewTable(p.Streams, time.Now(), "PROCESS", "STATE", "LAST SEEN", "STARTED", "GATEWAYS", "WHICH", "CALLS", "LAST CALL", "LISTEN", "VERSION")
	for _, one := range all.List {
		t.Row(cli.Uncut(one.Process), string(one.State), one.Seen, one.Started, one.Gateways, cli.Uncut(one.Which()), one.Calls, moments(one.LastCall), one.Listen, cli.Uncut(one.Version))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch versions := all.Versions(); {
	case len(versions) == 0:
		p.remark("no dispatcher serves: start one with \"dispatcher run\"")
	case len(versions) > 1:
		p.remark("%s versions serve at once: %s", job.CountText(int64(len(versions))), strings.Join(versions, "; "))
	}
	return nil
}
