package redisdb_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

// Every key that Keys names has a type, so that a key of another type is recognised.
func TestEveryKeyHasAType(t *testing.T) {
	t.Parallel()
	k := redisdb.NewKeys("g")
	v, whole := reflect.ValueOf(k), k.Whole()
	for i := range v.NumMethod() {
		name, m := v.Type().Method(i).Name, v.Method(i)
		if m.Type().NumOut() != 1 || m.Type().Out(0).Kind() != reflect.String || strings.HasSuffix(name, "Prefix") || name == "Aside" { // what was there may be of any type
			continue
		}
		var args []reflect.Value
		for n := range m.Type().NumIn() {
			args = append(args, reflect.New(m.Type().In(n)).Elem())
		}
		key := m.Call(args)[0].String()
		if redisdb.TypeOf(key) == "" {
			t.Errorf("%s: the type of %s is unknown", name, key)
		}
		if len(args) == 0 && !slices.Contains(whole, key) {
			t.Errorf("%s: %s is none of the gateway's own keys", name, key)
		}
	}
	for _, key := range append(k.TaskEnd("t", time.Now()).Keys, whole...) {
		if redisdb.TypeOf(key) == "" {
			t.Errorf("the type of %s is unknown", key)
		}
	}
	for _, other := range []string{"", "x", "spillway:wake", "spillway:{g}:other", "spillway:{g}:other:x", "asynq:{g}:job:x"} {
		if is := redisdb.TypeOf(other); is != "" {
			t.Errorf("%q is a %s", other, is)
		}
	}
}

// Redis's answer to a command on a key of another type doesn't say which key that is. The client's error does, and says what to do: for a command, a
// pipeline, a script, a script that made the name itself, and one that runs for several callers.
func TestKeysOfAnotherTypeAreNamed(t *testing.T) {
	t.Parallel()
	db, c, _ := openTogether(t, redisdb.Options{})
	k, ctx := redisdb.NewKeys("g"), t.Context()
	db.Client.Set(ctx, k.Job("j"), "secret payload", 0)
	db.Client.Set(ctx, k.Counters(), "secret payload", 0)
	db.Client.HSet(ctx, k.Hold(), "f", "1")
	script := redisdb.NewScript("return redis.call('HGET', KEYS[1], 'f')")
	inner := redisdb.NewScript("return redis.call('HGET', 'spillway:{g}:counters', 'f')")
	for what, c := range map[string]struct {
		err  error
		keys []string
	}{
		"command": {db.Client.HGet(ctx, k.Job("j"), "s").Err(), []string{k.Counters(), k.Job("j")}},
		"pipeline": {func() error {
			_, err := db.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.HGet(ctx, k.Hold(), "f")
				p.HGet(ctx, k.Job("j"), "f")
				return nil
			})
			return err
		}(), []string{k.Counters(), k.Job("j")}},
		"script": {script.Run(ctx, db.Client, []string{k.Job("j")}).Err(), []string{k.Counters(), k.Job("j")}},
		"within": {inner.Run(ctx, db.Client, []string{k.Hold()}).Err(), []string{k.Counters()}},
		"shared": {tally.Run(ctx, c, []string{k.Job("j"), k.Hold()}, "1", "", "x").Err(), []string{k.Counters(), k.Job("j")}},
	} {
		e, is := errors.AsType[*redisdb.DamagedError](c.err)
		if !is {
			t.Errorf("%s: %v", what, c.err)
			continue
		}
		var keys []string
		for _, key := range e.Keys {
			keys = append(keys, key.Name)
		}
		if !slices.Equal(keys, c.keys) || !strings.Contains(c.err.Error(), k.Counters()+" is a string and should be a hash") ||
			!strings.Contains(c.err.Error(), "redis-cli RENAME") || strings.Contains(c.err.Error(), "secret") || !redis.HasErrorPrefix(c.err, "WRONGTYPE") {
			t.Errorf("%s: names %v: %v", what, keys, c.err)
		}
		if !redisdb.DamagedKeyOf(c.err, k.Counters()) || redisdb.DamagedKeyOf(c.err, k.Hold()) || redisdb.Away(c.err) {
			t.Errorf("%s: it is not told from other faults", what)
		}
	}
	if err := db.Client.HGet(ctx, "somebody's", "f").Err(); !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
}

// A key's name may come from a producer: copied into a shell, the advice runs nothing else.
func TestTheAdviceForADamagedKeyIsOneCommand(t *testing.T) {
	t.Parallel()
	err := &redisdb.DamagedError{Keys: []redisdb.DamagedKey{{Name: "spillway:{g}:job:a';reboot;'", Is: "string", Should: "hash"}}}
	if want := `(redis-cli RENAME 'spillway:{g}:job:a'\'';reboot;'\''' 'damaged:spillway:{g}:job:a'\'';reboot;'\''')`; !strings.Contains(err.Error(), want) {
		t.Errorf("%s", err)
	}
}
