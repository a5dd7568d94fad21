// Package record is the home of a job's record in Redis: its fields (layout.go), how Go reads it, and every script that changes its state. Each change
// is one script, so that a crash falls before it or after it and never in between. The head of a script lists its KEYS and ARGV; the steps that
// run it know their order. (mend.lua of internal/audit writes to records too: it gives a job that has lost its task another one.)
package record

import (
	"embed"
	"sync"

	"spillway/internal/redisdb"
)

//go:embed *.lua
var files embed.FS

func lua(name string) string { return Text(files, name) }

// Text returns the script of that name as Redis runs it: with the names that a record's fields have there. It panics if there is none, or if it names a
// field that a record does not have.
func Text(files embed.FS, name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	return Expand(string(text))
}

// OutageLua is outage.lua: when a gateway was down, and what that means for the attempts of a job. It goes after redisdb.NowLua.
var OutageLua = lua("outage")

// Lua is shelf.lua, brake.lua, batch.lua, gather.lua and record.lua: what every change of a record's state does, to the books of its batch and to the order of
// what is parked too. It goes after redisdb.NowLua.
var Lua = lua("shelf") + "\n" + lua("brake") + "\n" + lua("batch") + "\n" + lua("gather") + "\n" + lua("record")

// What an attempt does to its job.
var (
	Open = redisdb.NewSharedScript(redisdb.NowLua, Lua, OutageLua, redisdb.AliveLua, lua("open")).Replicated()
	Done = redisdb.NewSharedScript(redisdb.NowLua, Lua, OutageLua, lua("done")).Replicated()
	Back = redisdb.NewScript(redisdb.NowLua, Lua, OutageLua, lua("back")).Replicated()
	Park = redisdb.NewScript(redisdb.NowLua, Lua, OutageLua, lua("park")).Replicated()
)

// What becomes of jobs whose time has come, or whose worker died.
var (
	Due     = redisdb.NewScript(redisdb.NowLua, Lua, OutageLua, lua("due"))
	Reclaim = redisdb.NewScript(redisdb.NowLua, Lua, lua("reclaim"))
	Settle  = redisdb.NewScript(redisdb.NowLua, Lua, lua("settle"))
)

// What look-ups do to pending jobs: those whose outcome is in doubt.
var (
	LookClaim = redisdb.NewScript(redisdb.NowLua, Lua, redisdb.AliveLua, lua("look_claim"))
	LookEnd   = redisdb.NewScript(redisdb.NowLua, Lua, OutageLua, redisdb.AliveLua, lua("look_end")).Replicated()
	Ask       = redisdb.NewActScript(redisdb.NowLua, Lua, lua("ask"))
	Unask     = redisdb.NewScript(redisdb.NowLua, Lua, lua("unask"))
)

// What people do to jobs and batches. Readmit takes parked jobs in again.
var (
	Stop     = redisdb.NewSwitchScript(redisdb.NowLua, lua("stop"))
	Ahead    = redisdb.NewScript(redisdb.NowLua, lua("canary")).Replicated()
	Shelve   = redisdb.NewScript(redisdb.NowLua, Lua, lua("shelve")).Replicated()
	Withdraw = redisdb.NewActScript(redisdb.NowLua, Lua, lua("withdraw"))
	Discard  = redisdb.NewActScript(redisdb.NowLua, Lua, lua("discard"))
	Resolve  = redisdb.NewActScript(redisdb.NowLua, Lua, lua("resolve"))
	Expire   = redisdb.NewActScript(redisdb.NowLua, Lua, lua("expire"))
	Replace  = redisdb.NewActScript(redisdb.NowLua, Lua, lua("replace"))
)

// What is parked without having been a job, or whose record is damaged.
var (
	Unreadable = redisdb.NewScript(redisdb.NowLua, Lua, lua("unreadable"))
	Aside      = redisdb.NewScript(redisdb.NowLua, Lua, lua("aside"))
)

// Accept returns the script that takes in new jobs by an admission check: a fragment that defines bucket_load, bucket_take and their like. It
// keeps its answer.
func Accept(bucket string) *redisdb.Script {
	return accepts.of(bucket, func() *redisdb.Script {
		return redisdb.NewScript(redisdb.NowLua, Lua, bucket, lua("forms"), "local function offered()", lua("accept"), "end", lua("receipt")).Replicated()
	})
}

// Readmit returns the script that takes parked jobs in again by an admission check, as Accept.
func Readmit(bucket string) *redisdb.Script {
	return readmits.of(bucket, func() *redisdb.Script {
		return redisdb.NewActScript(redisdb.NowLua, Lua, bucket, lua("forms"), lua("readmit"))
	})
}

var accepts, readmits perCheck

// perCheck is a script that is composed once for each admission check: there are a handful of those, and maybe thousands of gateways.
type perCheck struct{ made sync.Map }

func (p *perCheck) of(bucket string, compose func() *redisdb.Script) *redisdb.Script {
	if s, ok := p.made.Load(bucket); ok {
		return s.(*redisdb.Script)
	}
	s, _ := p.made.LoadOrStore(bucket, compose())
	return s.(*redisdb.Script)
}
