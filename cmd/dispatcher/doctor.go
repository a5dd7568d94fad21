package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/doctor"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func doctorCommand(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "doctor [-g GATEWAY]...", Short: "Check Redis, the configuration and the connections to the gateways",
		Long: `Doctor checks Redis (version, persistence, eviction, memory, replicas, clock, latency), settings that are
allowed but risky, whether each gateway can be reached, and which jobs wait for a person. It changes nothing
and makes no call: it opens a connection to each gateway, with its TLS handshake, and closes it.

Each line says ok, warn or fail; faults are followed by what to do. The exit code is 1 when something fails, 5
when Redis is away (all other checks still run), and 0 with warnings only.`,
		Example: "  dispatcher doctor\n  dispatcher doctor -g stripe -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.doctor(cmd.Context(), names) },
	}
	gatewaysFlag(cmd, &names, "check this `GATEWAY` only; repeatable (default: all of the file)")
	return cmd
}

// doctorWait is how long doctor waits for Redis's first reply.
const doctorWait = 2 * time.Second

func (p *program) doctor(ctx context.Context, names []string) error {
	if p.server != "" {
		return p.doctorAfar(ctx, names)
	}
	cfg, unset, err := p.loadWithout()
	if err != nil {
		return err
	}
	chosen, err := desk.Choose(cfg, names)
	if err != nil {
		return err
	}
	report, err := doctor.Run(ctx, doctor.Params{Config: cfg, Unset: unset, Gateways: chosen, RedisWait: doctorWait})
	if err != nil {
		return err
	}
	return p.showReport(report)
}

// doctorAfar runs the checks in the dispatcher of --server.
func (p *program) doctorAfar(ctx context.Context, names []string) error {
	v, err := ask(ctx, p, remote.Examine, remote.At{Gateways: names})
	if err != nil {
		return err
	}
	if v.Away {
		v.Report.Away = errors.New("no answer came from Redis")
	}
	return p.showReport(v.Report)
}

// showReport writes the report, and returns its result.
func (p *program) showReport(report doctor.Report) (err error) {
	if p.JSON() {
		err = cli.WriteJSON(p.Out, report)
	} else {
		err = p.writeReport(report)
	}
	if err != nil {
		return err
	}
	return diagnosis(report)
}

// loadWithout loads the configuration with its secrets, or without unset ones, which it then reports.
func (p *program) loadWithout() (cfg *config.Config, unset, err error) {
	if cfg, err = p.load(false); err != nil {
		return nil, nil, err
	}
	whole, err := p.load(true)
	if err != nil {
		return cfg, err, nil
	}
	return whole, nil, nil
}

// diagnosis returns the command's error: nil if nothing failed and Redis could be checked.
func diagnosis(r doctor.Report) error {
	if r.Away != nil {
		return &job.Error{Code: job.CodeUnavailable, Message: "Redis is away, so what stands in it was not looked at; the other checks were made",
			Hint: "do what the line that says fail says, and run doctor again"}
	}
	if r.Failed > 0 {
		return &job.Error{Code: job.CodeFailed, Message: counted(r.Failed, "check") + " failed",
			Hint: "each line that says fail says what to do"}
	}
	return nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// writeReport writes a line for each check: on a terminal aligned, with the hint below; in a pipe level, check,
// gateway, message and hint, separated by tabs.
func (p *program) writeReport(r doctor.Report) error {
	var b strings.Builder
	checks := make([]doctor.Shown, len(r.Checks))
	for i, c := range r.Checks {
		checks[i].Check = c
	}
	if p.OutTerminal {
		checks = doctor.Few(r.Checks)
	}
	for _, c := range checks {
		c.Message, c.Hint = oneLine(c.Message), oneLine(c.Hint)
		if !p.OutTerminal {
			fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\n", c.Level, c.Name, c.Gateway, c.Message, c.Hint)
			continue
		}
		about := c.Name
		if c.Gateway != "" {
			about = c.Gateway + " " + c.Name
		}
		head := fmt.Sprintf("%-4s  %-24s  ", c.Level, about)
		if len(head) > checkIndent { // a long name gets its own line
			b.WriteString(strings.TrimRight(head, " ") + "\n")
			head = strings.Repeat(" ", checkIndent)
		}
		b.WriteString(p.Hang(head, c.Message))
		if c.Hint != "" {
			b.WriteString(p.Hang(strings.Repeat(" ", checkIndent)+"→ ", c.Hint))
		}
		if c.More > 0 {
			b.WriteString(p.Hang(strings.Repeat(" ", checkIndent), fmt.Sprintf("and %s more gateways: -o json has all", job.CountText(int64(c.More)))))
		}
	}
	if p.OutTerminal {
		fmt.Fprintf(&b, "\n%s, %s, %d ok (%s)\n", counted(r.Failed, "failure"), counted(r.Warned, "warning"),
			len(r.Checks)-r.Failed-r.Warned, job.Clock(time.Now()))
	}
	if _, err := fmt.Fprint(p.Out, b.String()); err != nil {
		return errors.Join(errors.New("writing the result"), err)
	}
	return nil
}

// checkIndent is the column at which the text of a check begins on a terminal.
const checkIndent = 32

// oneLine replaces line ends, and other characters that could move a terminal's cursor or reverse text.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}
