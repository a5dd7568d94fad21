// Package record contains a job's record in Redis: its fields (layout.go), how Go reads it, and every script
// that changes its state. Each change is one script, so that a crash happens before or after it and never in
// between. The head of a script lists its KEYS and ARGV; the packages that run it must pass them in that order.
// One other script writes to records: mend.lua of internal/audit gives a new task to a job that has lost its
// own.
package record

import (
	"embed"
	"slices"
	"strings"
	"sync"

	"spillway/internal/redisdb"
)

//go:embed *.lua
var files embed.FS

func lua(name string) string { return Text(files, name) }

// Text returns the named script as Redis runs it, with the short field names. It panics if there is no such
// script, or if it names an unknown field.
func Text(files embed.FS, name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	return Expand(string(text))
}

// OutageLua is outage.lua: when a gateway was down, and what that means for a job's attempts. It must follow
// redisdb.NowLua.
var OutageLua = lua("outage")

// FlowLua is flow.lua: which flow a job belongs to at a gateway with lanes.
var FlowLua = lua("flow")

// ShareLua is share.lua: how the room at admission is shared among flows. It must follow Lua.
var ShareLua = lua("share")

// Lua is redisdb.AliveLua, books.lua, gather.lua, brakes.lua and record.lua. They define what every change
// of a record's state does, including to its batch's totals and to the index of parked jobs. It must follow
// redisdb.NowLua. The order counts: for each local that a function uses, Lua looks through all that were defined since.
var Lua = joined(false)

// toldLua is Lua with feed.lua and told.lua, for gateways with an outcome feed.
var toldLua = sync.OnceValue(func() string { return joined(true) })

// fragments returns Lua, or toldLua for gateways with an outcome feed.
func fragments(feed bool) string {
	if feed {
		return toldLua()
	}
	return Lua
}

// joined reads and joins what fragments returns. Scripts share it, since each program would otherwise spend 8 ms on it at its start.
func joined(feed bool) string {
	names := []string{"books", "gather", "brakes", "record"}
	if feed {
		names = []string{"feed", "books", "gather", "brakes", "record", "told"}
	}
	all := []string{redisdb.AliveLua}
	for _, name := range names {
		all = append(all, forFeed(lua(name), feed))
	}
	return strings.Join(all, "\n")
}

// forFeed returns a script. For a gateway without an outcome feed it removes the lines that end in --fed.
func forFeed(script string, feed bool) string {
	if feed {
		return script
	}
	var kept strings.Builder
	for line := range strings.Lines(script) {
		if !strings.HasSuffix(line, "--fed\n") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// Script is a script that can end or park jobs, in two forms: one writes to the outcome feed, for gateways that
// have one; the other does not.
type Script struct {
	untold *redisdb.Script
	told   func() *redisdb.Script // composed on first use
}

// For returns the form for gateways with an outcome feed, or for those without.
func (s Script) For(feed bool) *redisdb.Script {
	if feed {
		return s.told()
	}
	return s.untold
}

// both composes the two forms of the script with this body. kind is one of redisdb's New functions, and behind
// are fragments that follow Lua.
func both(kind func(fragments ...string) *redisdb.Script, body string, behind ...string) Script {
	of := func(feed bool) *redisdb.Script {
		return kind(slices.Concat([]string{redisdb.NowLua, fragments(feed)}, behind, []string{forFeed(lua(body), feed)})...)
	}
	return Script{untold: of(false), told: sync.OnceValue(func() *redisdb.Script { return of(true) })}
}

// replicated returns a kind whose scripts are Replicated (see redisdb.Script).
func replicated(kind func(fragments ...string) *redisdb.Script) func(fragments ...string) *redisdb.Script {
	return func(fragments ...string) *redisdb.Script { return kind(fragments...).Replicated() }
}

// Told returns all scripts in the form for gateways with an outcome feed, for the linter.
func Told() (all []*redisdb.Script) {
	for _, s := range []Script{Open, Done, Back, Park, Due, Reclaim, LookEnd, Unask, Shelve, Lapse, Withdraw, Discard, Resolve, Expire, Replace, Unreadable, Aside} {
		all = append(all, s.For(true))
	}
	return all
}

// Scripts of an attempt.
var (
	Open = both(replicated(redisdb.NewSharedScript), "open", OutageLua, lua("brakes_ask"))
	Done = both(replicated(redisdb.NewSharedScript), "done")
	Back = both(replicated(redisdb.NewScript), "back", OutageLua)
	Park = both(replicated(redisdb.NewScript), "park")
)

// Scripts for jobs whose time has come or whose worker died.
var (
	Due     = both(redisdb.NewScript, "due", OutageLua)
	Reclaim = both(redisdb.NewScript, "reclaim")
	Settle  = redisdb.NewScript(redisdb.NowLua, Lua, lua("settle"))
)

// Scripts of look-ups, for pending jobs, whose outcome is in doubt.
var (
	LookClaim = redisdb.NewScript(redisdb.NowLua, Lua, lua("look_claim"))
	LookEnd   = both(replicated(redisdb.NewScript), "look_end", OutageLua)
	Ask       = redisdb.NewActScript(redisdb.NowLua, Lua, lua("ask"))
	Unask     = both(redisdb.NewScript, "unask")
)

// Scripts of operators' actions on jobs and batches. Readmit admits parked jobs again.
var (
	Stop     = redisdb.NewSwitchScript(redisdb.NowLua, lua("stop"))
	Approve  = redisdb.NewActScript(redisdb.NowLua, Lua, lua("approval"), lua("approve"))
	Ahead    = redisdb.NewScript(redisdb.NowLua, lua("canary")).Replicated()
	Shelve   = both(replicated(redisdb.NewScript), "shelve")
	Lapse    = both(replicated(redisdb.NewScript), "lapse", OutageLua)
	Withdraw = both(redisdb.NewActScript, "withdraw")
	Discard  = both(redisdb.NewActScript, "discard")
	Resolve  = both(redisdb.NewActScript, "resolve")
	Expire   = both(redisdb.NewActScript, "expire")
	Replace  = both(redisdb.NewActScript, "replace", lua("approval"))
	Erase    = redisdb.NewActScript(redisdb.NowLua, Lua, lua("erase"))
	Retell   = redisdb.NewScript(redisdb.NowLua, lua("retell")).Replicated()
)

// Scripts that read and set a gateway's brakes.
var (
	TellCounted = redisdb.NewScript(redisdb.NowLua, lua("books"), lua("brakes"), lua("brakes_tell"))
	LookBrakes  = redisdb.NewScript(redisdb.NowLua, lua("books"), lua("brakes"), lua("brakes_look"))
	MendBrakes  = redisdb.NewScript(redisdb.NowLua, lua("books"), lua("brakes"), lua("brakes_mend"))
	LiftBrakes  = redisdb.NewActScript(redisdb.NowLua, lua("books"), lua("brakes"), lua("request"), lua("brakes_lift"))
)

// Scripts for acts that need a second person's approval.
var (
	RequestAsk    = redisdb.NewActScript(redisdb.NowLua, lua("request"), lua("request_ask"))
	RequestDecide = redisdb.NewActScript(redisdb.NowLua, Lua, lua("approval"), lua("request"), lua("request_decide"))
	RequestCarry  = redisdb.NewScript(redisdb.NowLua, lua("request"), lua("request_carry")).Replicated()
)

// Scripts that park foreign tasks and jobs with a damaged record.
var (
	Unreadable = both(redisdb.NewScript, "unreadable")
	Aside      = both(redisdb.NewScript, "aside")
)

// Form says what a gateway has that few gateways have: scripts of the others do without it.
type Form struct {
	Feed      bool // an outcome feed
	Flows     bool // its room at admission is shared among flows
	Approvals bool // large batches need a second person's approval
}

// Accept returns the script that admits new jobs with an admission check: a fragment that defines bucket_load,
// bucket_take and so on. The script is cached.
func Accept(bucket string, f Form) *redisdb.Script {
	return accepts.of(check{bucket, f}, func() *redisdb.Script {
		body := "local function accept()\n" + forFeed(lua("accept"), f.Feed) + "\nend\nreturn accept()" // a function may have 200 locals, and so may the script
		return redisdb.NewScript(redisdb.NowLua, fragments(f.Feed), bucket, approvals(f.Approvals), share(f.Flows), body).Replicated()
	})
}

// Readmit returns the script that admits parked jobs again, like Accept.
func Readmit(bucket string, flows bool) *redisdb.Script {
	return readmits.of(check{bucket, Form{Flows: flows}}, func() *redisdb.Script {
		return redisdb.NewActScript(redisdb.NowLua, Lua, bucket, share(flows), lua("readmit"))
	})
}

// share returns share.lua, or stubs for a gateway without flows, because Redis would define its functions again
// at each call.
func share(flows bool) string {
	if flows {
		return ShareLua
	}
	return "local function share_open() end\n"
}

// approvals returns approval.lua, or stubs for a gateway that needs none.
func approvals(needs bool) string {
	if needs {
		return lua("approval")
	}
	return "local function approval_awaits() end\nlocal function approval_joined() end\n"
}

var accepts, readmits perCheck

// check is what a script is composed for.
type check struct {
	bucket string
	Form
}

// perCheck caches a script composed for each admission check: there are few checks, but maybe thousands of
// gateways.
type perCheck struct{ made sync.Map }

func (p *perCheck) of(by check, compose func() *redisdb.Script) *redisdb.Script {
	if s, ok := p.made.Load(by); ok {
		return s.(*redisdb.Script)
	}
	s, _ := p.made.LoadOrStore(by, compose())
	return s.(*redisdb.Script)
}
