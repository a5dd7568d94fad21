package redisdb

import (
	"context"
	_ "embed" // the scripts are files
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed mark.lua
var markLua string

type replicatedKey struct{}

// Replicated returns a context under which a command, or a script, is answered only when Options.WaitReplicas replicas have
// what it wrote, and all that was written before it. Until then its error is ErrAway, although it has run: run it again, on
// whatever is the primary by then, for the same to hold. It concerns commands that are sent one by one: pipelines and transactions
// pass as they are. With no replicas to wait for, nothing changes.
func Replicated(ctx context.Context) context.Context {
	return context.WithValue(ctx, replicatedKey{}, true)
}

// replicas is the part of a client that waits for replicas. It stands where the client's commands pass, so that whoever wraps the
// client need not know of it.
type replicas struct {
	n      int
	within time.Duration // less than the time-out for an answer, so that Redis says how many there were
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
		ctx = context.WithValue(ctx, replicatedKey{}, nil) // what the driver itself sends over a new connection comes by here too
		err := r.run(ctx, cmd)
		if cluster, ok := r.client.(*redis.ClusterClient); ok && says(err, notPrimary) { // nothing has run
			_ = cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil }) // learns who holds what now
			err = r.run(ctx, cmd)
		}
		cmd.SetErr(err)
		return err
	}
}

// notPrimary begins the answers of a server that does not hold the key, or not any more.
var notPrimary = []string{"READONLY", "MOVED"}

// run sends the command and the wait for the replicas over one connection, in one round trip. WAIT speaks of what its own connection
// has written; newer versions forget a command that changed nothing, such as the repetition of one whose answer was lost: the mark
// between them is a write in any case, and whoever has it has all that came before.
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

// primary is the server that holds the key.
func (r replicas) primary(ctx context.Context, key string) (redis.UniversalClient, error) {
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return r.client, nil
}

// firstKey is the key by which a command finds its server.
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

// markKeys are the keys of mark.lua, on the server of the key.
func markKeys(key string) []string {
	tag := key
	if _, rest, ok := strings.Cut(key, "{"); ok {
		tag, _, _ = strings.Cut(rest, "}")
	}
	return []string{prefix + tag + "}:mark", prefix + tag + "}:none"}
}
