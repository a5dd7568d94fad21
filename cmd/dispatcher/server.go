package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
)

// The environment variables for --server.
const (
	serverVariable    = "DISPATCHER_SERVER"
	tokenVariable     = "DISPATCHER_TOKEN"
	tokenFileVariable = "DISPATCHER_TOKEN_FILE"
)

func (p *program) serverFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&p.server, "server", os.Getenv(serverVariable), "`URL` of a running dispatcher that runs the command; Redis and the file are not needed locally ($"+serverVariable+"; its token in $"+tokenVariable+")")
	f.StringVar(&p.tokenFile, "token-file", os.Getenv(tokenFileVariable), "`FILE` with the token of --server ($"+tokenFileVariable+")")
}

// at opens the desk: that of the dispatcher of --server, or a local one using the configuration's Redis.
func (p *program) at(ctx context.Context) (remote.Desk, error) {
	if p.server == "" {
		s, err := p.open(ctx)
		if err != nil {
			return nil, err
		}
		return &remote.Here{Config: s.cfg, DB: s.db}, nil
	}
	token, err := p.token()
	if token == "" && err == nil {
		token, err = p.loggedIn(ctx)
	}
	if err != nil {
		return nil, coded(err)
	}
	there, err := remote.NewThere(p.server, token)
	if err == nil {
		p.warnOfTheWay(token)
	}
	return there, err
}

// warnOfTheWay warns once, even with -q, that the token can be read in transit.
func (p *program) warnOfTheWay(token string) {
	u, err := url.Parse(p.server)
	if err != nil || token == "" || u.Scheme != "http" || loopback(u.Hostname()) || p.warned {
		return
	}
	p.warned = true
	fmt.Fprintf(p.Err, "warning: http://%s shows the token, and with it all that it allows, to anyone on the way; use https://\n", u.Host)
}

// token returns the token of --server; empty if there is none. It is never given in a flag, because every user
// of the machine can see flags.
func (p *program) token() (string, error) {
	if token := os.Getenv(tokenVariable); token != "" || p.tokenFile == "" {
		return token, nil
	}
	text, err := os.ReadFile(p.tokenFile)
	if err != nil {
		return "", cli.Usage("name a file that can be read", "--token-file: %v", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", cli.Usage("write the token into it", "--token-file %s is empty", p.tokenFile)
	}
	return token, nil
}

// stayLocal are the commands without an API operation, and why.
var stayLocal = map[string]string{
	"outcomes copy": "it writes into your own database, and takes the outcomes from outcomes",
	"run":           "it is the dispatcher itself, and needs the file and Redis",
	"demo":          "it brings its own Redis and provider",
	"provider":      "it stands in for a gateway, and talks to no dispatcher",
	"healthcheck":   "it asks a dispatcher's /readyz, and --listen says of which",
	"config show":   "it is about the file on this machine",
	"packs list":    "the packs are in the program",
	"packs show":    "the packs are in the program",
	"reconcile":     "it compares a file on this machine with every record, and needs Redis itself",
	"verify":        "it compares files on this machine, and needs neither Redis nor a dispatcher",
	"login":         "it keeps a login beside the operator",
	"logout":        "it forgets a login beside the operator",
	"man":           "it writes the manual pages of the program",
}

// takesServer reports whether a command without an operation supports --server all the same.
func takesServer(command string) bool {
	return command == "outcomes copy" || command == "login" || command == "logout"
}

// checkServer refuses --server for a command that does not support it, before anything else is checked.
func (p *program) checkServer(cmd *cobra.Command, _ []string) error {
	_, command, _ := strings.Cut(cmd.CommandPath(), " ")
	why, local := stayLocal[command]
	if !local || takesServer(command) || p.server == "" {
		return nil
	}
	needsRedis := command == "run" || command == "reconcile" // the environment does not concern the others
	if !needsRedis && !cmd.Flags().Changed("server") {
		return nil
	}
	return cli.Usage("leave --server and $"+serverVariable+" out", "\"%s\" can't be done by --server: %s", cmd.CommandPath(), why)
}

// acts returns who acts.
func acts(why string) (remote.Actor, error) {
	who, err := cli.WhoAmI()
	return remote.ActorOf(desk.By{Who: who, Why: why}), err
}

// forAct returns who acts and where, for an act that needs a reason. The caller closes the desk.
func (p *program) forAct(ctx context.Context, why, command string) (by remote.Actor, to remote.Desk, err error) {
	if err = desk.NeedWhy(why, command); err != nil {
		return by, nil, err
	}
	if by, err = acts(why); err != nil {
		return by, nil, err
	}
	to, err = p.at(ctx)
	return by, to, err
}

// ask carries out an operation without lines, for gateways.
func ask[Q, L, A any](ctx context.Context, p *program, op *remote.Op[Q, L, A], q Q) (a A, err error) {
	d, err := p.at(ctx)
	if err != nil {
		return a, err
	}
	defer d.Close()
	return op.Ask(ctx, d, q)
}

// atAll is at for a list of the gateways with these names, or of all: for all, it says what the list omits.
func (p *program) atAll(ctx context.Context, names []string) (remote.Desk, error) {
	d, err := p.at(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.leftOut(ctx, d, names); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// leftOut says what a list over all configured gateways lacks: jobs of gateways that are no longer configured.
func (p *program) leftOut(ctx context.Context, d remote.Desk, names []string) error {
	if p.Quiet || len(names) > 0 {
		return nil
	}
	v, err := remote.Unlisted.Ask(ctx, d, remote.None{})
	p.remarkUnlisted("left out: ", v.Gateways)
	return err
}

// open loads the configuration and connects to its Redis.
func (p *program) open(ctx context.Context) (*session, error) {
	cfg, err := p.loadShared()
	if err != nil {
		return nil, err
	}
	db, err := dispatch.Open(ctx, cfg, openWait)
	if err != nil {
		return nil, err
	}
	if err := dispatch.Known(ctx, db, cfg.Gateways, 0); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &session{cfg: cfg, db: db, desk: desk.New(db.Client, cfg.Gateways).Of(db.Client, cfg.Names())}, nil
}

// loadShared reads the configuration, and refuses one whose Redis no other process can reach.
func (p *program) loadShared() (*config.Config, error) {
	cfg, err := p.load(false)
	if err == nil && cfg.Redis == redisdb.Embedded {
		return nil, cli.Usage("name a Redis server: --redis redis://127.0.0.1:6379/0",
			"the embedded Redis lives in the dispatcher's process and is gone with it: there is nothing to look at from here")
	}
	return cfg, err
}
