package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// historyFlags are the flags of dlq history as typed.
type historyFlags struct {
	cmd          *cobra.Command
	gateways     []string
	since, until string
	limit        int
}

func dlqHistoryCommand(p *program) *cobra.Command {
	f := &historyFlags{}
	cmd := &cobra.Command{
		Use: "history [flags]", Short: "Show who did what to dead letters and gateways, when and why",
		Long: `History lists what people did to jobs (replay, discard, resolve, replace, park) and to the gateway itself
(pause, resume, limits, rename), gateway by gateway in the file's order, and within a gateway
oldest first, and at the end the gateways that were forgotten: who, when, why, which flags chose the jobs, how many there were and how much money. Nothing
is ever trimmed from it. An act without an end is under way or was killed: the count of its jobs is right
all the same, their money may be a second behind.`,
		Example: "  dispatcher dlq history -g stripe\n  dispatcher dlq history --since 30d -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.dlqHistory(cmd.Context(), f) },
	}
	f.cmd = cmd
	gatewaysFlag(cmd, &f.gateways, "only what was done at this `GATEWAY`; repeatable (default: all of the file)")
	fs := cmd.Flags()
	fs.StringVar(&f.since, "since", "", "only what was begun at or after `TIME`: 24h or 2d ago, 2026-11-30, \"2026-11-30 18:00\" (local time unless it says otherwise), RFC 3339")
	fs.StringVar(&f.until, "until", "", "only what was begun before `TIME`")
	fs.IntVar(&f.limit, "limit", 0, "at most `N` acts, oldest first (default: all)")
	return cmd
}

// span is the acts that the flags choose.
type span struct {
	since, until time.Time
	left         int // how many more; negative means no bound
}

func (f *historyFlags) understand(now time.Time) (span, error) {
	filter := dlqFilter{cmd: f.cmd, gateways: f.gateways, since: f.since, until: f.until, limit: f.limit}
	chosen, err := filter.understand(now)
	s := span{since: chosen.Since, until: chosen.Until, left: chosen.Limit}
	if s.left == 0 {
		s.left = -1
	}
	return s, err
}

func (s *span) means(a deadletter.Act) bool {
	return (s.since.IsZero() || !a.At.Before(s.since)) && (s.until.IsZero() || a.At.Before(s.until))
}

// actView is a line of "dlq history -o json".
type actView struct {
	Gateway string `json:"gateway"`
	deadletter.Act
}

func (p *program) dlqHistory(ctx context.Context, f *historyFlags) error {
	chosen, err := f.understand(time.Now())
	if err != nil {
		return err
	}
	p.remarkZone("--since", f.since)
	p.remarkZone("--until", f.until)
	s, err := p.openAt(ctx, f.gateways)
	if err != nil {
		return err
	}
	defer s.close()
	list := p.newPaged("AT", "GATEWAY", "WHO", "WHAT", "JOBS", "MONEY", "FILTER", "WHY", "ENDED")
	for _, g := range s.desk.Gateways {
		if err := listActs(ctx, g.Store, &chosen, func(a deadletter.Act) error {
			return list.addAct(actView{g.Name, a})
		}); err != nil {
			return err
		}
	}
	if err := p.forgotten(ctx, s, f.gateways, &chosen, list); err != nil {
		return err
	}
	if list.rows == 0 {
		p.nothingMeant("act")
	}
	return list.flush()
}

// forgotten lists the gateways that were forgotten, behind the others, unless some gateways are named.
func (p *program) forgotten(ctx context.Context, s *session, names []string, chosen *span, list *paged) error {
	if len(names) > 0 {
		return nil
	}
	all, err := s.desk.Forgotten(ctx)
	if err != nil {
		return err
	}
	for _, f := range all {
		if chosen.left != 0 && chosen.means(f.Act) {
			chosen.left--
			if err := list.addAct(actView{f.Gateway, f.Act}); err != nil {
				return err
			}
		}
	}
	return nil
}

func listActs(ctx context.Context, store *deadletter.Store, chosen *span, show func(deadletter.Act) error) error {
	for a, err := range store.Acts(ctx) {
		if err != nil {
			return err
		}
		if chosen.left == 0 {
			return nil
		}
		if !chosen.means(a) {
			continue
		}
		chosen.left--
		if err := show(a); err != nil {
			return err
		}
	}
	return nil
}

func (l *paged) addAct(v actView) error {
	if l.p.JSON() {
		return cli.WriteJSON(l.out, v)
	}
	money := l.table.Money(v.Totals)
	if r := v.Replaced; r != nil {
		money = l.table.Money(job.Totals{Amount: r.Amount, NoAmount: r.NoAmount}) + " → " + money
	}
	var ended time.Time
	if v.Ended != nil {
		ended = *v.Ended
	}
	return l.row(v.At, cli.Uncut(v.Gateway), v.Who, cli.Uncut(v.What), v.Jobs, money, cli.Uncut(v.Filter), cli.Uncut(v.Why), ended)
}
