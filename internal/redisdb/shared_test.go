package redisdb_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// tally counts in what is gathered, and answers each caller with its own key and argument, or fails.
var tally = redisdb.NewSharedScript(redisdb.NowLua, record.Lua, `
if ARGV[2] == 'fail' then return redis.error_reply('ERR ' .. ARGV[1]) end
if ARGV[2] == 'raise' then redis.call('INCR', 'spillway:{g}:a:hash') end
if ARGV[2] == 'break' then error(ARGV[1]) end
books_count(KEYS[1], 'n', 1)
gather_add(KEYS[1] .. ':set', ARGV[1], ARGV[1])
gather_count(KEYS[1] .. ':number')
redis.call('SET', KEYS[2], ARGV[1])
gather_delete(KEYS[2])
return {ARGV[1], KEYS[2], {#KEYS, #ARGV}, gather_once('first') and 1 or 0}`)

// Each caller that shares a run of a script gets its own answer or error, and changes made once for all of them have the same result.
func TestWhoSharesAScriptGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	db, c, count := openTogether(t, redisdb.Options{})
	if err := db.Client.HSet(t.Context(), "spillway:{g}:a:hash", "f", 1).Err(); err != nil {
		t.Fatal(err)
	}
	const all = 400
	good := 0
	var wg sync.WaitGroup
	for i := range all {
		how := map[int]string{3: "fail", 5: "raise", 8: "break"}[i%11]
		if how == "" {
			good++
		}
		wg.Go(func() {
			key, arg := fmt.Sprintf("spillway:{g}:own:%d", i), fmt.Sprint(i)
			got, err := tally.Run(t.Context(), c, []string{"spillway:{g}:all", key}, arg, how, "same").Slice()
			switch {
			case how == "" && (err != nil || fmt.Sprint(got[:3]) != fmt.Sprintf("[%s %s [2 3]]", arg, key)):
				t.Errorf("%d: got %v, %v", i, got, err)
			case how == "raise" && (err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE")):
				t.Errorf("%d: raised %v", i, err)
			case how != "" && how != "raise" && (err == nil || !strings.Contains(err.Error(), arg)):
				t.Errorf("%d: failed with %v", i, err)
			}
		})
	}
	wg.Wait()
	if n := count.n.Load(); n > all/2 {
		t.Errorf("%d scripts at once took %d round trips", all, n)
	}
	if n := db.Client.HGet(t.Context(), "spillway:{g}:all", "n").Val(); n != fmt.Sprint(good) {
		t.Errorf("%s are counted, want %d", n, good)
	}
	if n := db.Client.ZCard(t.Context(), "spillway:{g}:all:set").Val(); n != int64(good) {
		t.Errorf("%d are in the set, want %d", n, good)
	}
	if n := db.Client.Get(t.Context(), "spillway:{g}:all:number").Val(); n != fmt.Sprint(good) {
		t.Errorf("the number is %s, want %d", n, good)
	}
	if left := db.Client.Keys(t.Context(), "spillway:{g}:own:*").Val(); len(left) != 0 {
		t.Errorf("%d keys are left that were to go", len(left))
	}
}

// shelves puts each caller's job on a shelf of its gateway, with a batch of the same name in all of them.
var shelves = redisdb.NewSharedScript(redisdb.NowLua, record.Lua, `
gather_book(KEYS[1], 'n')
shelf_put(KEYS[2], 'refused', 'batch', '1')
local stopped = gather_stopped(KEYS[2], 'batch')
return {shelf_id(KEYS[2]), stopped or ''}`)

// What is noted, or known, of one gateway does not affect another. If a key of one is damaged, the changes of the others are made.
func TestGatewaysThatShareARunKeepTheirOwn(t *testing.T) {
	t.Parallel()
	db, c, _ := openTogether(t, redisdb.Options{})
	const gateways, each = 12, 15
	counters := func(g int) string { return fmt.Sprintf("spillway:{g%d}:tally", g) }
	if err := db.Client.HSet(t.Context(), "spillway:{g3}:batch:batch", "paused", "1", "why", "asked").Err(); err != nil {
		t.Fatal(err)
	}
	if err := db.Client.Set(t.Context(), counters(7), "text", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range gateways {
		for i := range each {
			wg.Go(func() {
				id := fmt.Sprintf("job-%d-%d", g, i)
				got, err := shelves.Run(t.Context(), c, []string{counters(g), fmt.Sprintf("spillway:{g%d}:job:%s", g, id)}).Slice()
				switch why := map[int]string{3: "its batch is paused: asked"}[g]; {
				case g == 7 && (err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE")):
					t.Errorf("of a damaged key: %v", err)
				case g != 7 && (err != nil || got[0] != id || got[1] != why):
					t.Errorf("%s got %v, %v", id, got, err)
				}
			})
		}
	}
	wg.Wait()
	for g := range gateways {
		if g == 7 {
			continue
		}
		if n := db.Client.HGet(t.Context(), counters(g), "n").Val(); n != fmt.Sprint(each) {
			t.Errorf("gateway %d: %s are counted, want %d", g, n, each)
		}
		shelf := db.Client.ZRange(t.Context(), fmt.Sprintf("spillway:{g%d}:parked:refused:b:batch", g), 0, -1).Val()
		if len(shelf) != each || !strings.HasPrefix(shelf[0], fmt.Sprintf("job-%d-", g)) {
			t.Errorf("gateway %d: %v on its shelf", g, shelf)
		}
	}
}
