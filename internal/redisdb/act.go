package redisdb

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed act.lua
var actLua string

// clockScript reads the clock of the server that has its key.
var clockScript = NewScript(NowLua, "return int(now_us('0'))")

// actLife is how long after its start an operator's act may still be carried out, as in act.lua: longer than anyone
// waits for a reply.
const actLife = 5 * time.Second

// ErrLate means that an operator's act reached Redis too late, or after one that was started later: it was not carried
// out. It is also an ErrAway.
var ErrLate = fmt.Errorf("an act came too late: %w", ErrAway)

// NewActScript joins fragments, including NowLua, into a script for an operator's act, to be run with Act. It is
// Replicated.
func NewActScript(fragments ...string) *Script { return actScript("false", fragments) }

// NewSwitchScript is NewActScript for a switch, where two acts in the wrong order would leave a wrong state: an act
// that arrives after a later one is not carried out. Its first key must be the hash with the switch's state, and its
// body must return 0 if it changed nothing.
func NewSwitchScript(fragments ...string) *Script { return actScript("true", fragments) }

func actScript(isSwitch string, fragments []string) *Script {
	last := len(fragments) - 1
	body := "local function act()\n" + fragments[last] + "\nend\nlocal SWITCH = " + isSwitch + "\n" + actLua
	return NewScript(append(slices.Clone(fragments[:last]), body)...).Replicated()
}

// Act runs a script of NewActScript or NewSwitchScript for an operator who waits. It is carried out within five
// seconds, or never. The error is ErrAway if Redis did not answer, and ErrLate if the act was too late.
func (s *Script) Act(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd {
	begun, err := clockScript.Run(ctx, c, keys[:1]).Int64()
	if err != nil {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(err)
		return cmd
	}
	cmd := s.Run(ctx, c, keys, append(args, begun)...)
	if err := cmd.Err(); err != nil {
		cmd.SetErr(unacted(Leaving(tagOf(keys[0]), err), time.UnixMicro(begun).Add(actLife)))
	}
	return cmd
}

// Itself runs a script of NewActScript for which no operator waits: it is never too late.
func (s *Script) Itself(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd {
	cmd := s.Run(ctx, c, keys, append(args, 0)...)
	if err := cmd.Err(); err != nil {
		cmd.SetErr(Leaving(tagOf(keys[0]), err))
	}
	return cmd
}

// tagOf returns the gateway of a key.
func tagOf(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	name, _, _ := strings.Cut(rest, "}")
	return name
}

// unacted adds to the error of a failed act whether it was carried out.
func unacted(err error, until time.Time) error {
	switch {
	case says(err, []string{"LATE"}):
		return &Error{Kind: ErrLate, Message: "it was not carried out: it reached Redis too late, or after something that was begun later",
			Hint: "look how things stand, and run it again if it is still to be done"}
	case unreachable(err):
		return &Error{Kind: ErrAway, Message: fmt.Sprintf("Redis did not answer, so it may have been carried out or not; after %s it is not carried out any more",
			until.UTC().Format(time.TimeOnly+"Z")), Hint: "look how things stand when Redis is back, and run it again if it is still to be done", Err: err}
	}
	return err
}
