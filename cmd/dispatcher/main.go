// Dispatcher sends queued jobs to their gateways, each at its leak rate, and manages parked jobs.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/tracing"
)

func main() { os.Exit(cli.Main(name, newCommand, os.Args[1:], cli.Standard())) }

const name = "dispatcher"

const long = `Dispatcher takes jobs from their queues and calls each payment gateway at its leak rate: never above
it in any rolling window, never idle below it. Jobs that can't be called now are parked with a reason, and replayed.`

// program is shared by every command: the common flags and the streams.
type program struct {
	cli.Common
	cli.Streams
	payloads bool // the command shows payloads: it needs the encryption keys
	// server is the address of a dispatcher that carries out operations; empty: they are carried out here,
	// using the configuration's Redis.
	server, tokenFile string
	warned            bool // that the token of --server can be read in transit
}

func newCommand(s cli.Streams) *cobra.Command {
	p := &program{Streams: s}
	root := &cobra.Command{
		Use: name, Short: "Call payment gateways at their leak rate", Long: long,
		Example: "  dispatcher demo\n  dispatcher run -c dispatcher.yaml\n  dispatcher status",
	}
	p.AddTo(root)
	p.serverFlags(root)
	root.PersistentPreRunE = p.checkServer
	root.AddCommand(runCommand(p), statusCommand(p), callsCommand(p), answersCommand(p), processesCommand(p), topCommand(p), jobCommand(p), findCommand(p), doctorCommand(p), dlqCommand(p), auditCommand(p), limitCommand(p), brakeCommand(p), laneCommand(p), routeCommand(p), pauseCommand(p), resumeCommand(p), demoCommand(p), providerCommand(p))
	root.AddCommand(batchCommand(p), gatewayCommand(p), parkCommand(p), forgetCommand(p), outcomesCommand(p), exportCommand(p), reconcileCommand(p), verifyCommand(p), healthcheckCommand(p), configCommand(p), packsCommand(p), trailCommand(p), approvalCommand(p), loginCommand(p), logoutCommand(p), cli.ManCommand(s, &p.Common))
	return root
}

// session is an open Redis connection with its configuration, and the desk of the selected gateways.
type session struct {
	cfg  *config.Config
	db   *redisdb.DB
	desk *desk.Desk
}

// load reads the configuration. Only run needs the gateways' secrets.
func (p *program) load(secrets bool) (*config.Config, error) {
	cfg, err := config.Load(p.Config, config.Options{Secrets: secrets, Payloads: secrets || p.payloads})
	if err != nil {
		return nil, cli.CodeEach(job.CodeUsage, "", err)
	}
	if p.Redis != "" {
		cfg.Redis, cfg.RedisAt = config.Secret(p.Redis), config.Position{}
		p.WarnOfRedis(p.Streams)
	}
	return cfg, nil
}

// openWait is how long a command waits for Redis's first reply.
const openWait = 5 * time.Second

// close closes the connection. Everything requested has been answered by then.
func (s *session) close() { _ = s.db.Close() }

// openAt opens a session for the gateways with these names, or all, in configured order.
func (p *program) openAt(ctx context.Context, names []string) (*session, error) {
	s, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	chosen, err := desk.Choose(s.cfg, names)
	if err != nil {
		err = s.desk.Explain(ctx, names, err)
		s.close()
		return nil, err
	}
	s.desk = desk.New(s.db.Client, chosen).Of(s.db.Client, s.cfg.Names())
	return s, nil
}

// gatewaysFlag declares the repeatable flag -g.
func gatewaysFlag(cmd *cobra.Command, names *[]string, usage string) {
	cmd.Flags().StringArrayVarP(names, "gateway", "g", nil, usage)
}

// traces opens the tracing that the environment configures, for a command that admits jobs. The caller must
// close it.
func (p *program) traces(ctx context.Context) (*tracing.Tracer, error) {
	return tracing.Open(ctx, "spillway-dispatcher", os.Getenv, slog.New(slog.NewTextHandler(p.Err, nil)))
}

// remark writes a line to standard error, unless -q.
func (p *program) remark(format string, args ...any) {
	if !p.Quiet {
		fmt.Fprintf(p.Say(), format+"\n", args...)
	}
}
