package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
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
	c.Warn(s, fmt.Sprintf("every user of this machine can see the password of %s in its list of processes; %s", flag, do))
}

// Warn writes a warning on standard error, unless it is empty or -q is set.
func (c *Common) Warn(s Streams, text string) {
	if text != "" && !c.Quiet {
		fmt.Fprintln(s.Err, "warning: "+text)
	}
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

// once is a flag value that may be given only once: otherwise the last one would silently win.
type once struct {
	value *string
	given bool
}

// String returns the value.
func (o *once) String() string {
	if o.value == nil {
		return ""
	}
	return *o.value
}

// Set accepts the first value.
func (o *once) Set(s string) error {
	if o.given {
		return fmt.Errorf("it was given already, as %q", *o.value)
	}
	*o.value, o.given = s, true
	return nil
}

// Type names the value in the help.
func (o *once) Type() string { return "string" }

// choice is a flag value that must be one of a few words.
type choice struct {
	value   *string
	allowed []string
	unset   string
}

// String returns the word, or the default before the flag was set.
func (c *choice) String() string {
	if c.value == nil || *c.value == "" {
		return c.unset
	}
	return *c.value
}

// Set accepts one of the allowed words.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.words(), s) {
		return fmt.Errorf("must be one of %s", strings.Join(c.words(), ", "))
	}
	*c.value = s
	return nil
}

// Type names the value in the help.
func (c *choice) Type() string { return strings.Join(c.words(), "|") }

// words returns the allowed words without the empty one, which means that the flag was not given.
func (c *choice) words() []string {
	return slices.DeleteFunc(slices.Clone(c.allowed), func(s string) bool { return s == "" })
}

// OpenFile opens the file that a flag names. An error has code usage.
func OpenFile(path, flag string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, wrongFile(path, flag, err)
	}
	if info, err := f.Stat(); err != nil || info.IsDir() {
		_ = f.Close()
		if err == nil {
			err = errors.New("it is a directory")
		}
		return nil, wrongFile(path, flag, err)
	}
	return f, nil
}

func wrongFile(path, flag string, err error) error {
	hint := "check the path given to " + flag + "; " + flag + " - reads standard input"
	if errors.Is(err, fs.ErrPermission) {
		hint = "ask for the right to read it, or run as a user who may"
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // os repeats the path
	}
	return Usage(hint, "can't read %s: %v", path, err)
}

// Character parses a flag's value that is one character, or the word tab. It returns 0 if the flag is not
// given.
func Character(flag, text string) (byte, error) {
	switch {
	case text == "":
		return 0, nil
	case text == "tab":
		return '\t', nil
	case len(text) > 1:
		return 0, Usage("give one character in quotes, like ';'", "--%s %q is not one character", flag, text)
	}
	return text[0], nil
}
