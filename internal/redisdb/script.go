package redisdb

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Script is one Lua script, composed of fragments. It is composed when it is first used, because a command uses few of
// the scripts that there are.
type Script struct {
	one        func() *redis.Script
	several    func() *redis.Script // runs it for several callers at once; nil if that is not possible
	ends       bool                 // a per-gateway function runs after it
	replicated bool
}

// NewScript joins fragments, in order, into one script. Fragments define local functions, of which only those in use
// are included; the last one is the body. If a fragment defines at_end, it runs after the body, even if the body has
// failed.
func NewScript(fragments ...string) *Script { return &Script{one: composed(fragments)} }

// scripts are those that were defined, and the texts of those composed so far.
var scripts struct {
	sync.Mutex
	all   []func() *redis.Script
	texts []string
}

// Prepare composes every script that is defined, so that none has to be composed between a slot and its call.
func Prepare() {
	scripts.Lock()
	all := slices.Clone(scripts.all)
	scripts.Unlock()
	for _, compose := range all {
		compose()
	}
}

// Texts returns the text of every script that is defined, for a linter.
func Texts() []string {
	Prepare()
	scripts.Lock()
	defer scripts.Unlock()
	return slices.Clone(scripts.texts)
}

// composed returns a function that composes a script once.
func composed(fragments []string) func() *redis.Script {
	compose := sync.OnceValue(func() *redis.Script {
		text := Compose(ended(fragments)...)
		scripts.Lock()
		defer scripts.Unlock()
		scripts.texts = append(scripts.texts, text)
		return redis.NewScript(text)
	})
	scripts.Lock()
	defer scripts.Unlock()
	scripts.all = append(scripts.all, compose)
	return compose
}

// NewSharedScript joins fragments into a script that a client of Together runs for several waiting callers at once: one
// after the other, in one step, even for several gateways, unless a fragment defines at_end. If a fragment defines
// gather and gathered (record.Lua does), they run before and after the callers of each gateway. The body must not
// change KEYS and ARGV, and must return something other than nil or false. Arguments must be strings or numbers,
// because they are compared: equal ones are sent only once.
func NewSharedScript(fragments ...string) *Script {
	s, last := NewScript(fragments...), len(fragments)-1
	before := slices.Clone(fragments[:last])
	if !defines(before, "gather(") {
		before = append(before, noGatherLua)
	}
	s.several, s.ends = composed(append(before, "local function one(KEYS, ARGV)\n"+fragments[last]+"\nend\n"+severalLua)), defines(before, "at_end(")
	return s
}

const noGatherLua = "\nlocal function gather() end\nlocal function gathered() end\n"

// defines reports whether a fragment defines a function with this prefix.
func defines(fragments []string, name string) bool {
	return slices.ContainsFunc(fragments, func(f string) bool { return strings.Contains("\n"+f, "\nlocal function "+name) })
}

// ended returns the fragments with a call of at_end after the body, if one of them defines it.
func ended(fragments []string) []string {
	last := len(fragments) - 1
	if !defines(fragments[:last], "at_end(") {
		return fragments
	}
	return append(slices.Clone(fragments[:last]), "\nlocal function body()\n"+fragments[last]+"\nend\n"+endedLua)
}

// Replicated returns the script for writes that must not be lost once acknowledged: Run runs it under Replicated.
func (s *Script) Replicated() *Script {
	return &Script{one: s.one, several: s.several, ends: s.ends, replicated: true}
}

// Run runs the script by its hash and, if Redis does not know it (after a restart, a failover, SCRIPT FLUSH), by its
// text. NOSCRIPT proves that nothing ran, so it is the only failure after which the script is sent again.
func (s *Script) Run(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd {
	if w, ok := c.(*crew); ok {
		return w.run(ctx, s, keys, args)
	}
	if s.replicated {
		ctx = Replicated(ctx)
	}
	if t, ok := c.(*together); ok && s.several != nil {
		if cmd := t.run(askedOf(ctx, s, keys, args)); !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			return cmd
		}
		return s.one().Eval(ctx, c, keys, args...)
	}
	return s.one().Run(ctx, c, keys, args...)
}

// Runner queues one run of a script in a pipeline.
type Runner func(keys []string, args ...any) *redis.Cmd

// Pipelined runs a script many times in one round trip. If Redis does not know the script, Pipelined loads it on every
// node and sends the pipeline again, so queue only what may be repeated. The error is that of the first failed run.
func (s *Script) Pipelined(ctx context.Context, c redis.UniversalClient, queue func(Runner)) error {
	send := func() error {
		cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			queue(func(keys []string, args ...any) *redis.Cmd { return s.one().EvalSha(ctx, p, keys, args...) })
			return nil
		})
		for _, cmd := range cmds { // another command may have failed first
			if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
				return cmd.Err()
			}
		}
		return err
	}
	err := send()
	if err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err
	}
	if err := s.load(ctx, c); err != nil {
		return err
	}
	return send()
}

// Clock replaces Redis's clock in a test, in microseconds. Nil means Redis's own.
type Clock func() int64

// Now returns the time for scripts (now_us): 0 means Redis's own clock.
func (c Clock) Now() int64 {
	if c == nil {
		return 0
	}
	return c()
}

// Flag returns a boolean in the form that scripts take.
func Flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// BadReply returns the error for a reply that the script never gives.
func BadReply(script string, reply any) error {
	return fmt.Errorf("%s answered %T, not what it is written to answer: is another version of Spillway at work on this Redis?", script, reply)
}

func (s *Script) load(ctx context.Context, c redis.UniversalClient) error {
	if cluster, ok := c.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return s.one().Load(ctx, node).Err() })
	}
	return s.one().Load(ctx, c).Err()
}

// NowLua defines now_us(override): Redis's clock in whole microseconds, read once; an override other than "0" is
// for tests, and holds for the rest of the script. TIME's microseconds are not zero-padded: they are added, never joined as text.
const NowLua = `
local now_read
local function now_us(override)
  local given = override ~= '0' and tonumber(override) or 0
  if given > 0 then now_read = given end
  if now_read then return now_read end
  local t = redis.call('TIME')
  now_read = t[1] * 1000000 + t[2] -- which makes numbers of the text
  return now_read
end
-- %d is twice as quick as %.0f, and as exact where it has 64 bits: not everywhere.
local number_text, WHOLE = string.format, string.format('%d', 2 ^ 53) == '9007199254740992' and '%d' or '%.0f'
local function int(x) return number_text(WHOLE, x) end
local FORMAT = ` + Format + `
-- barred returns why nothing may be done with the gateway whose alive.lua's hash this is, or nil; and then its format, if it has one.
local function barred(alive)
  local v = redis.pcall('HMGET', alive, 'moving', 'format')
  if v.err then return nil, '0' end -- whatever else is wrong with that key is no reason to do nothing
  if v[1] then return redis.error_reply('LEAVING ' .. v[1]) end
  if v[2] and (tonumber(v[2]) or 0) > FORMAT then return redis.error_reply('NEWER ' .. v[2]) end
  return nil, v[2]
end
`

//go:embed several.lua
var severalLua string

//go:embed ended.lua
var endedLua string

// AliveLua is alive.lua: the age of a gateway's data, as the scripts that must not work on old data look at it.
//
//go:embed alive.lua
var AliveLua string
