package redisdb

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

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
		if cmd := t.run(askedOf(ctx, s, keys, args)); cmd.Err() == nil || !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
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

// endedLua runs the function body and then at_end, even if the body has failed: what it changed before it failed stays
// changed.
const endedLua = `
local ran, answer = pcall(body)
at_end()
if not ran and type(answer) ~= 'table' then answer = redis.error_reply(tostring(answer)) end
return answer
`

// AliveLua is alive.lua: the age of a gateway's data, as the scripts that must not work on old data look at it.
//
//go:embed alive.lua
var AliveLua string

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

var (
	constantName  = regexp.MustCompile(`^[A-Z][A-Z0-9_]+$`)
	constantValue = regexp.MustCompile(`^[0-9]+(?: [/^] [0-9]+)?$`)
)

// WithConstants returns fragments in which each use of a constant is its number. A constant is a local of the top level whose name has at least two letters, all capitals, and whose value is
// a number. Lua makes the functions of a script anew in each run, and looks for every local that one of them uses: that takes longer than a number in its place.
func WithConstants(fragments ...string) []string {
	values := map[string]string{}
	for _, f := range fragments {
		for line := range strings.Lines(f) {
			if of, ok := strings.CutPrefix(line, "local "); ok {
				defineConstants(values, of)
			}
		}
	}
	out := make([]string, len(fragments))
	for i, f := range fragments {
		var text strings.Builder
		for line := range strings.Lines(f) {
			if of, ok := strings.CutPrefix(line, "local "); !ok || !defineConstants(map[string]string{}, of) {
				line = replaceWords(line, values)
			}
			text.WriteString(line)
		}
		out[i] = text.String()
	}
	return out
}

// defineConstants adds the constants that a definition "NAME, NAME = number, number" has, and reports whether it is one.
func defineConstants(values map[string]string, definition string) bool {
	definition, _, _ = strings.Cut(definition, "--")
	left, right, _ := strings.Cut(strings.TrimSpace(definition), " = ")
	names, numbers := strings.Split(left, ", "), strings.Split(right, ", ")
	if len(names) != len(numbers) || slices.ContainsFunc(names, func(n string) bool { return !constantName.MatchString(n) }) ||
		slices.ContainsFunc(numbers, func(n string) bool { return !constantValue.MatchString(n) }) {
		return false
	}
	for i, n := range names {
		values[n] = numbers[i]
		if strings.Contains(numbers[i], " ") {
			values[n] = "(" + numbers[i] + ")"
		}
	}
	return true
}

// replaceWords replaces words of a line of Lua that are no fields, and stand in no string or comment.
func replaceWords(line string, by map[string]string) string {
	var out strings.Builder
	for i := 0; i < len(line); {
		from := i
		switch c := line[i]; {
		case strings.HasPrefix(line[i:], "--"):
			i = len(line)
		case c == '\'' || c == '"':
			i = stringEnd(line, i)
		case isWord(c):
			for i < len(line) && isWord(line[i]) {
				i++
			}
			if value, ok := by[line[from:i]]; ok && (from == 0 || line[from-1] != '.') {
				out.WriteString(value)
				continue
			}
		default:
			i++
		}
		out.WriteString(line[from:i])
	}
	return out.String()
}
