package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/remote"
)

// steersman returns who is at the keyboard, or the user id if the name is unknown, as in a container: pausing a
// gateway must work all the same.
func steersman() string {
	who, err := cli.WhoAmI()
	if err != nil {
		return fmt.Sprintf("uid %d", os.Getuid())
	}
	return who
}

// steering returns an act on a gateway by who is at the keyboard.
func steering(gateway, why string) remote.GatewayAct {
	return remote.GatewayAct{Gateway: gateway, Actor: remote.ActorOf(desk.By{Who: steersman(), Why: why})}
}

// consentFlags adds the flags of an act that asks for confirmation.
func consentFlags(cmd *cobra.Command, c *cli.Consent) {
	cmd.Flags().BoolVar(&c.Yes, "yes", false, "do it without asking")
	cmd.Flags().BoolVar(&c.DryRun, "dry-run", false, "say what would be done, and do nothing")
}

// actFlags are the flags of an act on gateways that asks for confirmation.
type actFlags struct {
	gateways []string
	why      string
	consent  cli.Consent
}

// declare declares them, with what is said of --gateway and --why.
func (f *actFlags) declare(cmd *cobra.Command, gateways, why string) {
	gatewaysFlag(cmd, &f.gateways, gateways)
	cmd.Flags().StringVar(&f.why, "why", "", why)
	consentFlags(cmd, &f.consent)
}

// inSteps carries out an operation with steps, and shows its progress. size returns how much of it a step is.
func inSteps[Q, L, A any](ctx context.Context, p *program, to remote.Desk, op *remote.Op[Q, L, A], q Q, bar cli.ProgressParams, size func(L) int64) (A, error) {
	bar.Quiet = p.Quiet
	progress := cli.NewProgress(p.Streams, bar)
	defer progress.Close()
	var done int64
	return op.Do(ctx, to, q, remote.Out[L]{Line: func(step L) error {
		done += size(step)
		progress.Set(done)
		return nil
	}})
}

func jobsOf(s remote.BatchStep) int64 { return s.Jobs }

// remarkDryRun says that nothing was done, if so.
func (p *program) remarkDryRun(decision cli.Decision) {
	if decision == cli.DryRun {
		p.remark("nothing was done: add --yes to do it")
	}
}

// approvedEvery is how often a running dispatcher looks for approved requests that were interrupted.
const approvedEvery = 15 * time.Second

// goOn continues approved requests that were interrupted.
func (s served) goOn(ctx context.Context) {
	serving, err := s.choose(s.file.Load())
	if err == nil {
		var done []desk.Request
		done, err = desk.New(s.db.Client, serving).GoOn(ctx, s.traces)
		for _, r := range done {
			s.log.Info("went on with what was approved", "request", r.ID, "gateway", r.Gateway, "what", r.What, "who", r.DecidedBy, "asked_by", r.By)
		}
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("what was approved was not gone on with", "error", err)
	}
}

func pauseCommand(p *program) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: "pause -g GATEWAY", Short: "Stop calling a gateway until it is resumed",
		Long:    "Pause stops all processes from starting calls to the gateway; calls in flight finish, and jobs are still accepted.",
		Example: `  dispatcher pause -g stripe --why "maintenance window"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.steer(cmd.Context(), names, why, remote.Pause)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to pause; repeatable")
	cmd.Flags().StringVar(&why, "why", "by an operator", "the `REASON`, shown by status and recorded in the trail")
	return cmd
}

func resumeCommand(p *program) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: "resume -g GATEWAY", Short: "Call a paused gateway again",
		Example: "  dispatcher resume -g stripe",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.steer(cmd.Context(), names, why, remote.Resume)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to resume; repeatable")
	cmd.Flags().StringVar(&why, "why", "", "the `REASON`, recorded in the trail")
	return cmd
}

func (p *program) steer(ctx context.Context, names []string, why string, op *remote.Steering) error {
	return eachNamed(ctx, p, names, op, func(name string) remote.SteerOf { return remote.SteerOf{GatewayAct: steering(name, why)} }, p.steered)
}

func (p *program) steered(v remote.Steered) error {
	var err error
	if p.JSON() {
		err = cli.WriteJSON(p.Out, map[string]string{"gateway": v.Gateway, "done": v.Done})
	} else if _, err = fmt.Fprintf(p.Out, "%s %s\n", v.Gateway, v.Done); err != nil {
		err = fmt.Errorf("writing the result: %w", err)
	}
	if err == nil && v.Remark != "" {
		p.remark("%s", v.Remark)
	}
	return err
}
