package redisdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// DamagedError is the error of a command or script that found keys of a wrong type: another program wrote to them. It
// says which, and what to do.
type DamagedError struct {
	// Keys are the keys of a wrong type, at least one.
	Keys []DamagedKey
	// Err is Redis's reply.
	Err error
}

// DamagedKey is a key of a wrong type.
type DamagedKey struct{ Name, Is, Should string }

// Error names the keys, without their contents.
func (e *DamagedError) Error() string {
	all := make([]string, len(e.Keys))
	for i, k := range e.Keys {
		all[i] = fmt.Sprintf("%s is a %s and should be a %s", k.Name, k.Is, k.Should)
	}
	first := strings.ReplaceAll(e.Keys[0].Name, "'", `'\''`) // for a shell
	return fmt.Sprintf("damaged in Redis: %s: find what else writes there, then take it away (redis-cli RENAME '%s' 'damaged:%s'), "+
		"and see what is missing (dispatcher audit)", strings.Join(all, "; "), first, first)
}

// Unwrap returns Redis's reply.
func (e *DamagedError) Unwrap() error { return e.Err }

// DamagedKeyOf reports whether err says that this key has a wrong type.
func DamagedKeyOf(err error, key string) bool {
	e, is := errors.AsType[*DamagedError](err)
	return is && slices.ContainsFunc(e.Keys, func(k DamagedKey) bool { return k.Name == key })
}

// wrongType is the prefix of Redis's reply to a command on a key of a wrong type. In a script's error it may be
// anywhere.
var wrongType = []string{"WRONGTYPE"}

// naming is a client hook that finds out which keys have a wrong type, because Redis does not say.
type naming struct{ client redis.UniversalClient }

// DialHook implements redis.Hook.
func (naming) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (n naming) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if named := n.name(ctx, err, cmd.Args()); named != nil {
			cmd.SetErr(named)
			return named
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (n naming) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil {
			return nil
		}
		for _, cmd := range cmds { // another command may have failed first
			named := n.name(ctx, cmd.Err(), cmd.Args())
			if named == nil {
				continue
			}
			if err == cmd.Err() { //nolint:errorlint // the pipeline's error is that of its first failed command
				err = named
			}
			cmd.SetErr(named)
		}
		return err
	}
}

// name returns a DamagedError if Redis's reply to a command with these arguments means a key of a wrong type, or nil.
func (n naming) name(ctx context.Context, err error, args []any) error {
	if !says(err, wrongType) {
		return nil
	}
	return n.among(ctx, err, ownKeysIn(args))
}

// among returns a DamagedError for such a reply, with the keys of a wrong type among these and their gateway's own; nil
// if there are none.
func (n naming) among(ctx context.Context, err error, keys []string) error {
	if _, named := errors.AsType[*DamagedError](err); named || len(keys) == 0 {
		return nil
	}
	keys = slices.Clone(keys)
	if gateway, ok := gatewayIn(keys[0]); ok {
		keys = append(keys, NewKeys(gateway).Whole()...)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	types := make([]*redis.StatusCmd, len(keys))
	_, failed := n.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			types[i] = p.Type(ctx, key)
		}
		return nil
	})
	if failed != nil {
		return nil
	}
	e := &DamagedError{Err: err}
	for i, key := range keys {
		if is, should := types[i].Val(), TypeOf(key); is != "none" && should != "" && is != should {
			e.Keys = append(e.Keys, DamagedKey{key, is, should})
		}
	}
	if len(e.Keys) == 0 {
		return nil
	}
	return e
}

// ownKeysIn returns the arguments of a command that may be keys of a gateway. Scripts derive the names of records and
// tasks from ids in their arguments.
func ownKeysIn(args []any) (keys []string) {
	for _, a := range args {
		if text, is := a.(string); is {
			if _, ours := gatewayIn(text); ours {
				keys = append(keys, text)
			}
		}
	}
	return keys
}

// gatewayIn returns the gateway in a key's name.
func gatewayIn(key string) (string, bool) {
	for _, start := range []string{prefix, "asynq:{"} {
		if rest, ours := strings.CutPrefix(key, start); ours {
			gateway, _, found := strings.Cut(rest, "}:")
			return gateway, found
		}
	}
	return "", false
}
