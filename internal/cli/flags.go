package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// DefaultConfig is the configuration file if neither --config nor $DISPATCHER_CONFIG names one.
const DefaultConfig = "dispatcher.yaml"

// Common holds the flags of every command.
type Common struct {
	Config string // the configuration file; default $DISPATCHER_CONFIG, else dispatcher.yaml
	Redis  string // overrides the file's redis; empty means the file's
	Output string // "text" (default) or "json"
	Quiet  bool   // no progress or notes on standard error
}

// AddTo adds the common flags to cmd and all its subcommands.
func (c *Common) AddTo(cmd *cobra.Command) {
	config := os.Getenv("DISPATCHER_CONFIG")
	if config == "" {
		config = DefaultConfig
	}
	f := cmd.PersistentFlags()
	f.StringVarP(&c.Config, "config", "c", config, "configuration `FILE` ($DISPATCHER_CONFIG)")
	f.StringVar(&c.Redis, "redis", "", "Redis `URL`; overrides the file, where ${REDIS_URL} or ${file:PATH} keeps a password out of the process list")
	f.VarP(&choice{value: &c.Output, allowed: []string{"text", "json"}, unset: "text"}, "output", "o", "`text|json`")
	f.BoolVarP(&c.Quiet, "quiet", "q", false, "no progress or notes on standard error")
}

// WarnOfRedis warns on standard error that a password in --redis is visible to others, unless -q.
func (c *Common) WarnOfRedis(s Streams) {
	c.WarnOfPassword(s, "--redis", c.Redis, "write redis: ${REDIS_URL} into the configuration, or ${file:PATH}")
}

// WarnOfPassword warns on standard error that a password in the address of a flag is visible to others, and
// says what to do, unless -q. A ${NAME} instead of a password is not.
func (c *Common) WarnOfPassword(s Streams, flag, url, do string) {
	_, rest, _ := strings.Cut(url, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 && !strings.Contains(rest[:end], "${") {
		rest = rest[:end]
	}
	at := strings.LastIndex(rest, "@")
	if _, password, _ := strings.Cut(rest[:max(at, 0)], ":"); password == "" || strings.HasPrefix(password, "${") || c.Quiet {
		return
	}
	fmt.Fprintf(s.Err, "warning: every user of this machine can see the password of %s in its list of processes; %s\n", flag, do)
}

// JSON reports whether to write results as JSON.
func (c *Common) JSON() bool { return c.Output == "json" }

// Once declares a text flag that may be given only once.
func Once(cmd *cobra.Command, value *string, name, short, usage string) {
	cmd.Flags().VarP(&once{value: value}, name, short, usage)
}

// Choice declares a flag that takes one of a few words; the first of them is the default, and may be empty.
func Choice(cmd *cobra.Command, value *string, name, usage string, allowed ...string) {
	cmd.Flags().Var(&choice{value: value, allowed: allowed, unset: allowed[0]}, name, usage)
}
