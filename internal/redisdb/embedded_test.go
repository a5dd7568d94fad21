package redisdb

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/testkit"
)

func TestEmbeddedAges(t *testing.T) {
	t.Parallel()
	db := open(t, "embedded", Options{})
	const lives = 300 * time.Millisecond
	set := time.Now()
	if err := db.Client.Set(t.Context(), "k", "v", lives).Err(); err != nil {
		t.Fatal(err)
	}
	if n := db.Client.Exists(t.Context(), "k").Val(); n != 1 && time.Since(set) < lives {
		t.Error("the key is gone at once")
	}
	testkit.Eventually(t, 10*time.Second, "the key to expire", func() bool { return db.Client.Exists(t.Context(), "k").Val() == 0 })
}

func TestEmbeddedTellsTheRealTime(t *testing.T) {
	t.Parallel()
	db := open(t, "embedded", Options{})
	before := time.Now().UnixMicro()
	got, err := NewScript(NowLua, "return int(now_us('0'))").Run(t.Context(), db.Client, nil).Int64()
	if err != nil || got < before || got > time.Now().UnixMicro() {
		t.Fatalf("TIME in a script says %d, %v; it was %d", got, err, before)
	}
}

func TestEmbeddedCheckWarnsOfItsEnd(t *testing.T) {
	t.Parallel()
	db := open(t, "embedded", Options{})
	found, err := db.Check(t.Context())
	if err != nil || !db.Embedded {
		t.Fatal(err)
	}
	compare(t, found, []string{"note gone with this process"})
}

func TestEmbeddedServersAreApart(t *testing.T) {
	t.Parallel()
	a, b := open(t, "embedded", Options{}), open(t, "embedded", Options{})
	if err := a.Client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.Client.Get(t.Context(), "k").Err(); err != redis.Nil {
		t.Error(err)
	}
}

func TestEmbeddedPublishesFromScripts(t *testing.T) {
	t.Parallel()
	db := open(t, "embedded", Options{})
	sub := db.Client.Subscribe(t.Context(), Wake)
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := NewScript("return redis.call('PUBLISH', ARGV[1], ARGV[2])").Run(t.Context(), db.Client, nil, Wake, "stripe").Err(); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-sub.Channel():
		if m.Payload != "stripe" {
			t.Errorf("got %q", m.Payload)
		}
	case <-time.After(time.Minute):
		t.Error("no message")
	}
}

// Every idiom of our scripts and asynq's must mean the same in the embedded Redis as in a real one.
func TestEmbeddedScriptsAgreeWithRedis(t *testing.T) {
	t.Parallel()
	real, inside := open(t, testkit.Redis(t), Options{}), open(t, "embedded", Options{})
	for name, body := range map[string]string{
		"integers beyond 2^31":     `redis.call('HSET', K, 'n', int(1795226165179300)) return {redis.call('HGET', K, 'n'), tonumber(redis.call('HGET', K, 'n')) + 1}`,
		"many fields at once":      `redis.call('HSET', K, 'a', 1, 'b', 2, 'c', 3) return redis.call('HMGET', K, 'a', 'b', 'c', 'none')`,
		"hash counters":            `redis.call('HINCRBY', K, 'a', 5) return {redis.call('HINCRBY', K, 'a', -7), redis.call('HLEN', K), redis.call('HDEL', K, 'a')}`,
		"a missing field is false": `local v = redis.call('HGET', K, 'none') return {v == false and 1 or 0, type(v)}`,
		"sorted sets": `for i = 1, 5 do redis.call('ZADD', K, int(1795226165179300 + i), 'j' .. i) end
			redis.call('ZADD', K, 'XX', 7, 'j1') redis.call('ZREM', K, 'j5')
			return {redis.call('ZRANGEBYSCORE', K, '-inf', int(1795226165179303), 'LIMIT', 0, 2), redis.call('ZCARD', K), redis.call('ZSCORE', K, 'j2'),
				redis.call('ZRANGE', K, 0, 0, 'WITHSCORES'), redis.call('ZADD', K, 'NX', 1, 'j1'), redis.call('ZCOUNT', K, '(7', '+inf')}`,
		"lists with counts": `redis.call('RPUSH', K, 'a', 'b', 'c', 'd', 'e')
			return {redis.call('LPOP', K, 2), redis.call('LINDEX', K, -1), redis.call('LRANGE', K, 0, -1), redis.call('LLEN', K), redis.call('LREM', K, 1, 'd'), redis.call('LSET', K, 0, 'x'), redis.call('RPOP', K, 5)}`,
		"asynq's dequeue":     `redis.call('LPUSH', K, 'a', 'b') return {redis.call('RPOPLPUSH', K, K2), redis.call('LRANGE', K2, 0, -1), redis.call('LINDEX', K, -1)}`,
		"an empty list":       `return {redis.call('LLEN', K), redis.call('LPOP', K) == false and 1 or 0, redis.call('EXISTS', K)}`,
		"expiry":              `redis.call('SET', K, 'v', 'PX', 60000) redis.call('PEXPIRE', K, 120000) local t = redis.call('PTTL', K) return {t > 60000 and 1 or 0, redis.call('PERSIST', K), redis.call('TTL', K)}`,
		"cjson":               `return cjson.encode({1, 2, cjson.decode('{"a":"b"}').a})`,
		"nil cuts the answer": `return {1, 2, nil, 4}`,
		"doubles are cut off": `return {3.99, math.floor(7 / 2), math.ceil(7 / 2), 7 % 3}`,
		"status and errors":   `local bad = redis.pcall('HGET', K) return {redis.status_reply('FINE'), type(bad.err)}`,
		"unpack":              `local t = {} for i = 1, 200 do t[i] = 'm' .. i end redis.call('RPUSH', K, unpack(t)) return redis.call('LLEN', K)`,
		"string functions":    `return {string.format('%.0f', 1795226165179300.0), ('a:b'):match('^(.-):'), ('abc'):sub(2, -1), #ARGV, ARGV[1], table.concat({'a', 'b'}, ',')}`,
		"copies and renames":  `redis.call('SET', K, 'v') redis.call('RENAME', K, K2) return {redis.call('EXISTS', K), redis.call('GET', K2), redis.call('DEL', K, K2), redis.call('SETNX', K, 1)}`,
		"type and sets":       `redis.call('SADD', K, 'a') return {redis.call('TYPE', K).ok, redis.call('SISMEMBER', K, 'a'), redis.call('SMEMBERS', K), redis.call('SREM', K, 'a')}`,
	} {
		script := NewScript(NowLua, "local K, K2 = KEYS[1], KEYS[2]", body)
		keys := []string{NewKeys(testkit.Gateway(t)).Job("a"), NewKeys(testkit.Gateway(t)).Job("b")}
		want, errReal := script.Run(t.Context(), real.Client, keys, "one").Result()
		got, errInside := script.Run(t.Context(), inside.Client, keys, "one").Result()
		if errReal != nil || errInside != nil || show(want) != show(got) {
			t.Errorf("%s: Redis says %s, %v; embedded says %s, %v", name, show(want), errReal, show(got), errInside)
		}
	}
}

func show(v any) string {
	switch v := v.(type) {
	case []any:
		var all []string
		for _, e := range v {
			all = append(all, show(e))
		}
		return "[" + strings.Join(all, " ") + "]"
	case string:
		return "'" + v + "'"
	}
	return fmt.Sprint(v)
}
