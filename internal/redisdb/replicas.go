package redisdb

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed mark.lua
var markLua string

type replicatedKey struct{}

// Replicated returns a context under which a command or script succeeds only when Options.WaitReplicas replicas have
// what it wrote, and everything written before it. Otherwise its error is ErrAway, although it has run: run it again,
// on whatever is the primary by then, to get the same guarantee. It applies to commands sent one by one, not to
// pipelines and transactions. Without replicas to wait for, it changes nothing.
func Replicated(ctx context.Context) context.Context {
	return context.WithValue(ctx, replicatedKey{}, true)
}

// replicas is a client hook that waits for replicas. As a hook, it also works for wrapped clients.
type replicas struct {
	n      int
	within time.Duration // less than the read timeout, so that Redis can report how many there were
	client redis.UniversalClient
}

// DialHook implements redis.Hook.
func (r replicas) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (r replicas) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (r replicas) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if ctx.Value(replicatedKey{}) == nil {
			return next(ctx, cmd)
		}
		ctx = context.WithValue(ctx, replicatedKey{}, nil) // the driver's own commands on a new connection pass through here, too
		err := r.run(ctx, cmd)
		if cluster, ok := r.client.(*redis.ClusterClient); ok && says(err, notPrimary) { // nothing has run
			_ = cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil }) // updates which node holds what
			err = r.run(ctx, cmd)
		}
		cmd.SetErr(err)
		return err
	}
}

// notPrimary are the prefixes of replies of a server that does not hold the key, or no longer.
var notPrimary = []string{"READONLY", "MOVED"}

// run sends the command and the wait for replicas over one connection, in one round trip. WAIT concerns what its own
// connection has written, and newer Redis versions ignore a command that changed nothing, such as a repeated one whose
// reply was lost. The mark between the two is always a write, and a replica that has it has everything before it.
func (r replicas) run(ctx context.Context, cmd redis.Cmder) error {
	key := firstKey(cmd)
	node, err := r.primary(ctx, key)
	if err != nil {
		return err
	}
	var mark *redis.Cmd
	have := redis.NewIntCmd(ctx, "wait", r.n, r.within.Milliseconds())
	_, _ = node.Pipelined(ctx, func(p redis.Pipeliner) error {
		_ = p.Process(ctx, cmd)
		mark = p.Eval(ctx, markLua, markKeys(key))
		return p.Process(ctx, have)
	})
	for _, err := range []error{cmd.Err(), mark.Err(), have.Err()} {
		if err != nil && err != redis.Nil {
			return err
		}
	}
	if have.Val() < int64(r.n) {
		return &Error{Kind: ErrAway, Message: fmt.Sprintf("of the %d replicas that must have each job (wait_replicas), %d have it after %s",
			r.n, have.Val(), r.within), Hint: "bring the replicas back, or take wait_replicas out of the configuration"}
	}
	return cmd.Err()
}

// primary returns the server that holds the key.
func (r replicas) primary(ctx context.Context, key string) (redis.UniversalClient, error) {
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return r.client, nil
}

// firstKey returns the key that determines a command's server.
func firstKey(cmd redis.Cmder) string {
	at := 1
	if name := cmd.Name(); name == "eval" || name == "evalsha" {
		at = 3
	}
	if args := cmd.Args(); at < len(args) {
		return fmt.Sprint(args[at])
	}
	return ""
}

// markKeys returns the keys of mark.lua, on the server of the key.
func markKeys(key string) []string {
	tag := key
	if _, rest, ok := strings.Cut(key, "{"); ok {
		tag, _, _ = strings.Cut(rest, "}")
	}
	return []string{prefix + tag + "}:mark", prefix + tag + "}:none"}
}
