package dispatch

import (
	"cmp"
	"context"
	_ "embed" // for the scripts
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/incarnation"
	"spillway/internal/job"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
)

//go:embed move.lua
var moveLua string

var moveScript = redisdb.NewScript(moveLua)

const (
	scanned   = 1000    // keys that one scan step reads
	movedOnce = 200     // keys that one step changes
	taken     = "TAKEN" // prefix of the error of move.lua for an existing key of the new name
)

// Moving is a gateway, no longer configured, that is renamed or forgotten.
type Moving struct {
	Redis redis.UniversalClient
	Old   string
	New   config.Gateway // no name: forget it
	Act   deadletter.Act // who does it, and why; Redis sets its time
	// Did is called with the number of keys that each step has changed.
	Did func(keys int64)

	once int // keys that one step changes; 0: movedOnce
}

func (m Moving) move() incarnation.Move {
	return incarnation.Move{Old: m.Old, New: m.New.Name, Silence: quiet}
}

// Check returns why it can't be done with this Redis or configuration, or nil. The gateways' state is checked
// when it begins.
func (m Moving) Check() error {
	if m.New.Name == "" {
		return nil
	}
	if _, cluster := m.Redis.(*redis.ClusterClient); cluster {
		return &job.Error{Code: job.CodeFailed, Message: "in a cluster a gateway can't be renamed: its keys would have to go to another node",
			Hint: fmt.Sprintf("have %s in the file beside %s until its jobs are done, and send new ones to %s", m.Old, m.New.Name, m.New.Name)}
	}
	if m.New.Encryption != nil {
		return &job.Error{Code: job.CodeFailed, Message: "payloads are sealed for their gateway's name, and could not be opened under another one",
			Hint: fmt.Sprintf("have %s in the file beside %s until its jobs are done, and send new ones to %s", m.Old, m.New.Name, m.New.Name)}
	}
	return nil
}

// begin stops calls and admission at the gateway. It returns the audit entry in the form of incarnation.Left.
func (m *Moving) begin(ctx context.Context) (entry string, err error) {
	move, err := m.patient(ctx)
	if err != nil {
		return "", err
	}
	if m.New.Name != "" {
		line, err := json.Marshal(m.Act.Clean())
		if err != nil {
			return "", err
		}
		move.Entry = string(line)
	}
	left, err := move.Leave(ctx, m.Redis)
	if err != nil {
		return "", err
	}
	return left.Entry, m.refused(left)
}

// refused returns why it could not begin; nil if it has begun.
func (m *Moving) refused(left incarnation.Left) error {
	var message, hint string
	switch left.What {
	case "begun", "again":
		return nil
	case "served":
		name := map[string]string{"1": m.Old, "2": m.New.Name}[left.Entry]
		message, hint = fmt.Sprintf("a dispatcher serves %s", name), fmt.Sprintf("stop all that do, and wait %s; they may serve the others: dispatcher run -g OTHERS", quiet)
	case "open":
		message, hint = fmt.Sprintf("%s of %s may be in flight, with an unknown outcome", map[bool]string{true: "1 call", false: left.Entry + " calls"}[left.Entry == "1"], m.Old),
			fmt.Sprintf("put %s back into the file, run a dispatcher until \"status\" shows nothing in flight, and stop it", m.Old)
	case "taken":
		message, hint = fmt.Sprintf("%s has had jobs of its own (%s)", m.New.Name, left.Entry), fmt.Sprintf("choose a name that has none, or have %s in the file beside it until its jobs are done", m.Old)
	case "doubted":
		message, hint = "Redis's data is doubted: it may be an old snapshot", "settle that first: see the runbook, \"An old snapshot\""
	case "other":
		return redisdb.LeavingError(m.Old, left.Entry)
	default:
		return redisdb.BadReply("leave.lua", left.What)
	}
	return &job.Error{Code: job.CodeFailed, Message: message, Hint: hint}
}

// Rename gives everything that belongs to the gateway its new name, in small steps. If it is killed, it can be
// repeated to continue.
func (m Moving) Rename(ctx context.Context) error {
	entry, err := m.begin(ctx)
	if err != nil {
		return err
	}
	if err := redisdb.Register(ctx, m.Redis, m.New.Name); err != nil {
		return err
	}
	if err := m.join(ctx); err != nil {
		return err
	}
	for { // until none are left: a key found by one scan may get its new name before its turn
		moved, err := m.each(ctx, m.Redis, m.rename)
		if err != nil {
			return err
		}
		if moved == 0 {
			break
		}
	}
	if err := m.written(ctx, entry); err != nil {
		return err
	}
	if err := m.move().Arrive(ctx, m.Redis); err != nil {
		return err
	}
	return redisdb.Unregister(ctx, m.Redis, m.Old)
}

// each visits the gateway's keys some at a time, except for the one that records progress.
func (m Moving) each(ctx context.Context, node redis.UniversalClient, do func(context.Context, redis.UniversalClient, []string) (int64, error)) (all int64, err error) {
	for _, start := range redisdb.Starts(m.Old) {
		for cursor, first := uint64(0), true; first || cursor != 0; first = false {
			var keys []string
			if keys, cursor, err = node.Scan(ctx, cursor, start+"*", scanned).Result(); err != nil {
				return all, err
			}
			n, err := m.some(ctx, node, keys, do)
			if all += n; err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

func (m Moving) some(ctx context.Context, node redis.UniversalClient, keys []string, do func(context.Context, redis.UniversalClient, []string) (int64, error)) (all int64, err error) {
	alive, once := redisdb.NewKeys(m.Old).Alive(), cmp.Or(m.once, movedOnce)
	step := make([]string, 0, once)
	for i, key := range keys {
		if key != alive {
			step = append(step, key)
		}
		if len(step) == 0 || len(step) < once && i < len(keys)-1 {
			continue
		}
		n, err := do(ctx, node, step)
		if err != nil {
			return all, err
		}
		if all, step = all+n, step[:0]; m.Did != nil {
			m.Did(n)
		}
	}
	return all, nil
}

// rename gives keys their new names.
func (m Moving) rename(ctx context.Context, c redis.UniversalClient, keys []string) (int64, error) {
	messages, err := m.messages(ctx, c, keys)
	if err != nil {
		return 0, err
	}
	pairs := make([]string, 0, 2*len(keys))
	for _, key := range keys {
		pairs = append(pairs, key, strings.Replace(key, "{"+m.Old+"}", "{"+m.New.Name+"}", 1))
	}
	n, err := moveScript.Run(ctx, c, pairs, messages...).Int64()
	if redis.HasErrorPrefix(err, taken) {
		return n, &job.Error{Code: job.CodeFailed, Message: strings.TrimPrefix(err.Error(), taken+" "),
			Hint: "stop whatever still writes under the old name, and look at both keys; delete the one that is wrong, and run the same again: it goes on"}
	}
	return n, err
}

// messages returns the messages of the tasks among some keys, with the queue's new name; "" for other keys.
func (m Moving) messages(ctx context.Context, c redis.UniversalClient, keys []string) ([]any, error) {
	tasks, start := map[int]*redis.StringCmd{}, redisdb.NewKeys(m.Old).TaskPrefix()
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			if strings.HasPrefix(key, start) {
				tasks[i] = p.HGet(ctx, key, "msg")
			}
		}
		return nil
	})
	messages := make([]any, len(keys))
	for i := range messages {
		messages[i] = ""
		if task := tasks[i]; task != nil {
			msg, failed := task.Bytes()
			switch {
			case failed == nil:
				messages[i] = queue.Moved(msg, m.New.Name)
			case !errors.Is(failed, redis.Nil) && !redis.HasErrorPrefix(failed, "WRONGTYPE"): // otherwise it is no task and moves unchanged
				return nil, failed
			}
		}
	}
	if redisdb.Away(err) {
		return nil, err
	}
	return messages, nil
}

// written adds the end of the rename to the audit trail.
func (m Moving) written(ctx context.Context, place string) error {
	at, err := strconv.ParseInt(place, 10, 64)
	if err != nil {
		return err
	}
	return deadletter.New(m.Redis, m.New.Name).EndAct(ctx, at)
}

// Forgotten is the entry of a gateway that was or is being forgotten. It is permanent.
type Forgotten struct {
	Gateway string `json:"gateway"`
	deadletter.Act
}

// Forget deletes everything that belongs to the gateway, in small steps, and keeps an entry. If it is killed,
// it can be repeated to continue.
func (m Moving) Forget(ctx context.Context) error {
	began, err := m.begin(ctx)
	if err != nil {
		return err
	}
	field := m.Old + " " + began
	line, err := json.Marshal(Forgotten{m.Old, m.Act.Clean()})
	if err != nil {
		return err
	}
	if err := m.Redis.HSetNX(ctx, redisdb.Forgotten, field, line).Err(); err != nil {
		return err
	}
	if err := redisdb.EachPrimary(ctx, m.Redis, func(ctx context.Context, node redis.UniversalClient) error {
		_, err := m.each(ctx, node, unlink)
		return err
	}); err != nil {
		return err
	}
	if err := m.endForgotten(ctx, field); err != nil {
		return err
	}
	// Alive is deleted last: while it says that the gateway leaves, no job is admitted. A job admitted later
	// would be missing from the register.
	if err := redisdb.Unregister(ctx, m.Redis, m.Old); err != nil {
		return err
	}
	return m.Redis.Unlink(ctx, redisdb.NewKeys(m.Old).Alive()).Err()
}

func unlink(ctx context.Context, node redis.UniversalClient, keys []string) (int64, error) {
	return node.Unlink(ctx, keys...).Result()
}

func (m Moving) endForgotten(ctx context.Context, field string) error {
	line, err := m.Redis.HGet(ctx, redisdb.Forgotten, field).Bytes()
	if err != nil {
		return err
	}
	var f Forgotten
	if err := json.Unmarshal(line, &f); err != nil {
		return err
	}
	now := f.At.Add(time.Since(f.At)).Truncate(time.Microsecond)
	f.Ended = &now
	if line, err = json.Marshal(f); err != nil {
		return err
	}
	return m.Redis.HSet(ctx, redisdb.Forgotten, field, line).Err()
}

// AllForgotten returns the entries of the forgotten gateways, in no particular order.
func AllForgotten(ctx context.Context, c redis.UniversalClient) ([]Forgotten, error) {
	lines, err := c.HVals(ctx, redisdb.Forgotten).Result()
	if err != nil {
		return nil, err
	}
	all := make([]Forgotten, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &all[i]); err != nil {
			all[i] = Forgotten{Act: deadletter.Act{What: deadletter.Damaged, Why: "an entry of " + redisdb.Forgotten + " can't be read: another program has written to Redis"}}
		}
	}
	return all, nil
}

// Called counts the jobs of a gateway that are not over and may have been charged.
type Called struct {
	Waiting int64 // those of them that wait for another call
	Parked  int64
	// Otherwise is how many of them were sent with another URL, method, encoding or key prefix than the new
	// gateway's: they would be parked, not called.
	Otherwise int64
}

// MayBeCharged counts them.
func (m Moving) MayBeCharged(ctx context.Context) (n Called, err error) {
	k := redisdb.NewKeys(m.Old)
	ids, err := calledBefore(ctx, m.Redis, k)
	if err != nil {
		return n, err
	}
	if err := m.count(ctx, ids, &n.Waiting, &n.Otherwise); err != nil {
		return n, err
	}
	ids = ids[:0]
	for r, err := range deadletter.New(m.Redis, m.Old).List(ctx, deadletter.Filter{InDoubt: true, NoPayload: true}) {
		if err != nil {
			return n, err
		}
		ids = append(ids, r.Job.ID)
	}
	var charged int64
	n.Parked = int64(len(ids))
	return n, m.count(ctx, ids, &charged, &n.Otherwise)
}

// calledBefore returns the waiting jobs that may have been called.
func calledBefore(ctx context.Context, c redis.UniversalClient, k redisdb.Keys) ([]string, error) {
	ids, err := c.ZRange(ctx, k.Retrying(), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	lines, err := redisdb.Lines(ctx, c, k)
	for i := 0; i < len(lines) && err == nil; i++ {
		if line := lines[i]; line == k.Pending() || strings.HasPrefix(line, k.First("")) { // never called
			continue
		}
		var tasks []string
		tasks, err = c.LRange(ctx, lines[i], 0, -1).Result()
		for _, task := range tasks {
			if id, _, ok := job.ParseTaskID(task); ok {
				ids = append(ids, id)
			}
		}
	}
	return ids, err
}

// count counts those of the jobs that may have been charged, and those that were sent in another form than they
// would be now.
func (m Moving) count(ctx context.Context, ids []string, charged, otherwise *int64) error {
	k, now := redisdb.NewKeys(m.Old), ""
	if m.New.Name != "" {
		now = sent(m.New)
	}
	for len(ids) > 0 {
		some := ids[:min(len(ids), movedOnce)]
		ids = ids[len(some):]
		seen, err := readCharged(ctx, m.Redis, k, some)
		if err != nil {
			return err
		}
		for _, digest := range seen {
			if *charged++; now != "" && digest != "" && digest != now {
				*otherwise++
			}
		}
	}
	return nil
}
