package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/dispatch"
)

func limitCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "limit", Short: "Show and change a gateway's limits while it runs",
		Long: `Limit changes the leak rate on every process within a second, and admission's with it where the file names
no admission.limits. What is set is kept in Redis and wins over the file until it is reset.`,
		Example: "  dispatcher limit show -g stripe\n  dispatcher limit set -g stripe 50/s 2000/m\n  dispatcher limit reset -g stripe",
	}
	cmd.AddCommand(limitShow(p), limitSet(p), limitReset(p))
	return cmd
}

func limitShow(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "show [-g GATEWAY]...", Short: "Show the limits that hold now",
		Example: "  dispatcher limit show\n  dispatcher limit show -g stripe -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.limits(cmd.Context(), names, nil)
		},
	}
	gatewaysFlag(cmd, &names, "show this `GATEWAY` only; repeatable (default: all of the file)")
	return cmd
}

func limitSet(p *program) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: "set -g GATEWAY LIMIT...", Short: "Replace a gateway's limits, live",
		Example: "  dispatcher limit set -g stripe 50/s\n  dispatcher limit set -g stripe 100/s 5000/m",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := make([]config.Limit, len(args))
			for i, text := range args {
				var err error
				if to[i], err = config.ParseLimit(text); err != nil {
					return cli.Usage("each limit is an argument of its own: dispatcher limit set -g stripe 100/s 5000/m", "%v", err)
				}
			}
			return p.changeLimits(cmd.Context(), names, to, why)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to change; repeatable")
	whyFlag(cmd, &why)
	return cmd
}

func limitReset(p *program) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: "reset -g GATEWAY", Short: "Let the file's limits hold again",
		Example: "  dispatcher limit reset -g stripe",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.changeLimits(cmd.Context(), names, nil, why) },
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to reset; repeatable")
	whyFlag(cmd, &why)
	return cmd
}

func whyFlag(cmd *cobra.Command, why *string) {
	cmd.Flags().StringVar(why, "why", "", "the `REASON`, written down")
}

func (p *program) changeLimits(ctx context.Context, names []string, to []config.Limit, why string) error {
	if len(names) == 0 {
		return cli.Usage("name it with -g GATEWAY", "no gateway is named")
	}
	what := "limit reset"
	if len(to) > 0 {
		what = "limit set " + strings.Join(texts(to), " ")
	}
	return p.limits(ctx, names, func(s *session, g config.Gateway) error {
		if err := dispatch.CheckLimits(s.db.Client, g, to); err != nil {
			return err
		}
		return steer(ctx, s.db.Client, g.Name, what, why, func(ctx context.Context) error { return dispatch.SetLimits(ctx, s.db.Client, g, to) })
	})
}

// limitView is one line of "limit show -o json".
type limitView struct {
	Gateway string   `json:"gateway"`
	Limits  []string `json:"limits"`
	SetLive bool     `json:"set_live"`
	File    []string `json:"file"`
	// Admission is what holds at admission; Bottleneck which of the two holds jobs back in the long run.
	Admission  []string `json:"admission"`
	Bottleneck string   `json:"bottleneck"`
}

// limits makes a change, if there is one, and shows what holds then.
func (p *program) limits(ctx context.Context, names []string, change func(*session, config.Gateway) error) error {
	s, chosen, err := p.openAt(ctx, names)
	if err != nil {
		return err
	}
	defer s.close()
	for _, g := range chosen {
		if change != nil {
			if err := change(s, g); err != nil {
				return err
			}
		}
		now, err := dispatch.CurrentLimits(ctx, s.db.Client, g)
		if err != nil {
			return err
		}
		if err := p.showLimits(viewLimits(g, now)); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) showLimits(v limitView) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	from := "as in the file"
	if v.SetLive {
		from = "set live; the file says " + strings.Join(v.File, " ")
	}
	_, err := fmt.Fprintf(p.Tell(), "%s: %s (%s)\n", v.Gateway, boundText(v.Limits, v.Admission, v.Bottleneck), from)
	return err
}

func viewLimits(g config.Gateway, now dispatch.Limits) limitView {
	in := dispatch.AdmissionAt(g, now).Limits
	return limitView{g.Name, texts(now.Limits), now.Live, texts(g.Leak.Limits), texts(in), dispatch.Bottleneck(in, now.Limits)}
}

// boundText is the leak's limits, and admission's where they are the bottleneck.
func boundText(leak, admission []string, bottleneck string) string {
	text := strings.Join(leak, " ")
	if bottleneck == dispatch.BottleneckAdmission {
		text += " (admission " + strings.Join(admission, " ") + ")"
	}
	return text
}

func texts(limits []config.Limit) []string {
	all := make([]string, len(limits))
	for i, l := range limits {
		all[i] = l.String()
	}
	return all
}
