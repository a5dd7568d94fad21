package bucket

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"

	"spillway/internal/record"
	"spillway/internal/redisdb"
)

var (
	//go:embed pool.lua
	poolLua string
	//go:embed reserve.lua
	reserveHeadLua string
	//go:embed slots.lua
	slotsLua string
	//go:embed permits.lua
	permitsLua string
	//go:embed lanes.lua
	lanesLua string
	//go:embed scopes.lua
	scopesLua string
	//go:embed scoped.lua
	scopedLua string
	//go:embed scoped_succeeded.lua
	scopedSucceededLua string
	//go:embed over.lua
	overLua string
	//go:embed sorted.lua
	sortedLua string
	//go:embed beside.lua
	besideLua string
	//go:embed pick.lua
	pickHeadLua string
	//go:embed picked.lua
	pickedLua string
	//go:embed unbind.lua
	unbindLua string
	//go:embed moved.lua
	movedLua string
	//go:embed asks.lua
	asksLua string
	//go:embed override.lua
	overrideLua string
	//go:embed recall.lua
	recallLua string
	//go:embed release.lua
	releaseLua string
	//go:embed trim.lua
	trimLua string
	//go:embed late.lua
	lateLua string
	//go:embed reshape.lua
	reshapeLua string
	//go:embed succeeded.lua
	succeededLua string
	//go:embed pause.lua
	pauseLua string
	//go:embed look.lua
	lookLua string
	//go:embed fewer.lua
	fewerLua string
	//go:embed end.lua
	endLua string
	//go:embed circuit.lua
	circuitLua string
)

var (
	pickScript      = redisdb.NewScript(redisdb.WithConstants(pickText...)...)
	unbindScript    = redisdb.NewScript(unbindText...)
	movedScript     = redisdb.NewScript(movedText...)
	asksScript      = redisdb.NewScript(redisdb.NowLua, permitsLua, lanesLua, asksLua)
	overrideScript  = redisdb.NewSwitchScript(redisdb.NowLua, permitsLua, lanesLua, overrideLua)
	recallScript    = redisdb.NewScript(redisdb.NowLua, permitsLua, lanesLua, recallLua)
	overScript      = redisdb.NewScript(overText...)
	scopedScript    = redisdb.NewScript(scopedText...)
	scopedOKScript  = redisdb.NewScript(scopedOKText...)
	releaseScript   = redisdb.NewSharedScript(redisdb.NowLua, poolLua, releaseLua)
	trimScript      = redisdb.NewScript(redisdb.NowLua, poolLua, trimLua)
	lateScript      = redisdb.NewSharedScript(redisdb.NowLua, poolLua, lateLua)
	reshapeScript   = redisdb.NewScript(redisdb.NowLua, poolLua, reshapeLua)
	succeededScript = redisdb.NewScript(redisdb.NowLua, record.OutageLua, succeededLua)
	pauseScript     = redisdb.NewSwitchScript(redisdb.NowLua, pauseLua)
	lookScript      = redisdb.NewScript(redisdb.NowLua, lookLua)
	fewerScript     = redisdb.NewScript(redisdb.NowLua, fewerLua)
	endScript       = redisdb.NewScript(endLua)
	circuitScript   = redisdb.NewScript(redisdb.NowLua, record.OutageLua, circuitLua)
)

// What scripts of gateways with lanes are made of.
var (
	pickLua    = reserveHeadLua + pickHeadLua + pickedLua
	pickText   = []string{redisdb.NowLua, poolLua, permitsLua, lanesLua, scopesLua, record.FlowLua, sortedLua, besideLua, pickLua}
	unbindText = []string{redisdb.NowLua, permitsLua, lanesLua, scopesLua, unbindLua}
	movedText  = []string{redisdb.NowLua, permitsLua, lanesLua, movedLua}
	overText   = []string{redisdb.NowLua, permitsLua, lanesLua, scopesLua, overLua}
	// a report on one route or lane
	scopedOKText = []string{redisdb.NowLua, permitsLua, lanesLua, scopesLua, record.OutageLua, asFunction("succeeded", succeededLua) + scopedSucceededLua}
	scopedText   = []string{redisdb.NowLua, permitsLua, lanesLua, scopesLua, record.OutageLua, asFunction("circuit", circuitLua) + scopedLua}
)

// asFunction is the body of a script as a function, for a script that runs it with keys and arguments of its own.
func asFunction(name, body string) string {
	return "local function " + name + "(KEYS, ARGV)\n" + body + "\nend\n"
}

// noRetry sends a script only once. go-redis repeats a command whose answer didn't come, but the first may have
// run, and a repeated reservation would take its slots twice.
type noRetry struct{ redis.UniversalClient }

// withoutRetry returns a client that sends a script only once: c itself, if it says that it does.
func withoutRetry(c redis.UniversalClient) redis.UniversalClient {
	if _, already := c.(interface{ SendsOnce() }); already {
		return c
	}
	return noRetry{c}
}

type noRetryCmd struct{ *redis.Cmd }

func (noRetryCmd) NoRetry() bool { return true }

func (o noRetry) send(ctx context.Context, verb, script string, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, script, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	if err := o.Process(ctx, noRetryCmd{cmd}); err != nil {
		cmd.SetErr(err)
	}
	return cmd
}

// EvalSha runs a script by its hash, once.
func (o noRetry) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return o.send(ctx, "evalsha", sha, keys, args)
}

// Eval runs a script by its text, once.
func (o noRetry) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return o.send(ctx, "eval", script, keys, args)
}
