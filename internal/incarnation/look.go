package incarnation

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

//go:embed look.lua
var lookLua string

//go:embed begin.lua
var beginLua string

//go:embed raise.lua
var raiseLua string

//go:embed wake.lua
var wakeLua string

//go:embed line.lua
var lineLua string

//go:embed doubt.lua
var doubtLua string

//go:embed confirm.lua
var confirmLua string

var (
	lookScript    = redisdb.NewScript(redisdb.NowLua, lookLua)
	beginScript   = redisdb.NewScript(redisdb.NowLua, beginLua)
	raiseScript   = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, raiseLua)
	wakeScript    = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, wakeLua)
	doubtScript   = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, lineLua, doubtLua)
	confirmScript = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, lineLua, confirmLua).Replicated()
)

// look reads the age of a gateway's data. A non-zero now replaces Redis's clock, in µs.
func look(ctx context.Context, c redis.UniversalClient, gateway string, now int64) (data, error) {
	k := redisdb.NewKeys(gateway)
	v, err := lookScript.Run(ctx, c, []string{k.Alive(), k.Counters()}, now).StringSlice()
	if err != nil {
		return data{}, err
	}
	if len(v) != 11 {
		return data{}, fmt.Errorf("look.lua answered with %d values: is another version of Spillway at work on this Redis?", len(v))
	}
	d := data{line: v[1], v: v[3], marks: v[5], gaps: spans(v[4]), doubt: doubt{line: v[8]}, moving: v[9], format: v[10]}
	for i, to := range map[int]*int64{0: &d.now, 2: &d.at, 6: &d.doubt.from, 7: &d.doubt.seen} {
		if v[i] == "" {
			continue
		}
		if *to, err = strconv.ParseInt(v[i], 10, 64); err != nil {
			return data{}, fmt.Errorf("the age of gateway %s's data can't be read: is another version of Spillway at work on this Redis?", gateway)
		}
	}
	return d, nil
}

// spans parses "from-to from-to …" and omits what is malformed.
func spans(text string) []span {
	var all []span
	for one := range strings.FieldsSeq(text) {
		from, to, _ := strings.Cut(one, "-")
		a, errA := strconv.ParseInt(from, 10, 64)
		b, errB := strconv.ParseInt(to, 10, 64)
		if errA == nil && errB == nil {
			all = append(all, span{a, b})
		}
	}
	return all
}
