package access

import (
	"context"
	"crypto/sha256"
	_ "embed" // for the scripts
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
	"spillway/internal/seal"
)

//go:embed take.lua
var takeLua string

//go:embed granted.lua
var grantedLua string

//go:embed failed.lua
var failedLua string

//go:embed refused.lua
var refusedLua string

//go:embed look.lua
var lookLua string

var (
	takeScript    = redisdb.NewScript(redisdb.NowLua, takeLua)
	grantedScript = redisdb.NewScript(redisdb.NowLua, grantedLua)
	failedScript  = redisdb.NewScript(redisdb.NowLua, failedLua)
	refusedScript = redisdb.NewScript(redisdb.NowLua, refusedLua)
	lookScript    = redisdb.NewScript(redisdb.NowLua, lookLua)
)

// sealedAs is the id for which a token is sealed. No job has an id with a space.
const sealedAs = "access token"

// digest returns the name of credentials in Redis's keys. If payloads are sealed, the credentials can't be guessed
// from it without the key.
func digest(box *seal.Box, credentials string) string {
	sum := sha256.Sum256([]byte(credentials))
	return box.Digest(sealedAs, hex.EncodeToString(sum[:16]))
}

// taken is the reply of take.lua.
type taken struct {
	state, stored, number string
	lives, renew, wait    time.Duration
}

func (k *Keeper) take(ctx context.Context) (t taken, err error) {
	v, err := takeScript.Run(ctx, k.cfg.Redis, k.keys[:1], 0, k.owner, (k.cfg.Within + lateWithin).Microseconds()).StringSlice()
	if err != nil {
		return t, fmt.Errorf("the access token could not be read from Redis: %w", err)
	}
	if len(v) != 6 {
		return t, redisdb.BadReply("take.lua", v)
	}
	t = taken{state: v[0], stored: v[1], number: v[2]}
	for i, to := range []*time.Duration{&t.lives, &t.renew, &t.wait} {
		us, err := strconv.ParseInt(v[3+i], 10, 64)
		if err != nil {
			return t, redisdb.BadReply("take.lua", v)
		}
		*to = time.Duration(us) * time.Microsecond
	}
	return t, nil
}

// obtain reads the token from Redis, and fetches another one if it is this process's turn. It returns how long to
// wait before the next check. The caller holds turn.
func (k *Keeper) obtain(ctx context.Context) (wait time.Duration, err error) {
	if k.shut != nil {
		return firstBackoff, k.shut
	}
	asked := time.Now() // the remaining lifetime counts from before it was read
	t, err := k.take(ctx)
	if err != nil {
		return firstBackoff, err
	}
	if t.stored != "" {
		if err := k.adopt(asked, t); err != nil {
			return firstBackoff, err
		}
	}
	switch t.state {
	case "good":
		return 0, nil
	case "fetch":
		return k.fetch(ctx, asked)
	case "busy":
		return min(t.wait, jittered(look)), nil
	}
	return jittered(t.wait), nil
}

// jittered returns slightly more than d, so that processes waiting for the same time come one after another.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/10+time.Millisecond) }

// adopt starts to use a token from Redis.
func (k *Keeper) adopt(asked time.Time, t taken) error {
	if k.cfg.Box.Seals() && !seal.Sealed([]byte(t.stored)) {
		return k.discard(t, "it is not sealed, though encryption is on")
	}
	text, err := k.cfg.Box.Open(sealedAs, []byte(t.stored))
	if err != nil {
		return k.discard(t, err.Error())
	}
	k.use(&Token{Text: string(text), number: t.number, renew: asked.Add(t.renew), end: asked.Add(t.lives)})
	return nil
}

// discard drops a token that can't be used here, so that another one is fetched.
func (k *Keeper) discard(t taken, why string) error {
	ctx, cancel := context.WithTimeout(k.ctx, tellWithin)
	defer cancel()
	_ = refusedScript.Run(ctx, k.cfg.Redis, k.keys[:1], 0, t.number, 0).Err() // if it is still there, the next check finds it again
	return fmt.Errorf("the access token in Redis can't be used: %s; another one is fetched", why)
}

// use makes calls carry a token from now on.
func (k *Keeper) use(t *Token) {
	old := k.token.Load()
	if old != nil && old.number == t.number && time.Now().Before(old.end) {
		return
	}
	if old != nil {
		k.before.Store(old)
	}
	k.token.Store(t)
}

// fetch requests a token, and records the result.
func (k *Keeper) fetch(ctx context.Context, asked time.Time) (time.Duration, error) {
	got, err := k.cfg.Fetch(ctx)
	k.cfg.Metrics.asked(k.cfg.Gateway, got, err)
	tell, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWithin)
	defer cancel()
	if err != nil {
		return k.failed(tell, ctx.Err() != nil, got, err)
	}
	return k.granted(tell, asked, got)
}

func (k *Keeper) granted(ctx context.Context, asked time.Time, got Answer) (time.Duration, error) {
	life := got.Life
	if life <= 0 {
		life = DefaultLife
	}
	renew := life * 4 / 5
	life -= min(margin, life/10)
	stored, err := k.cfg.Box.Seal(sealedAs, []byte(got.Token))
	if err != nil {
		return firstBackoff, err
	}
	number, err := grantedScript.Run(ctx, k.cfg.Redis, k.keys, 0, k.owner, stored, life.Microseconds(), renew.Microseconds()).Text()
	if err != nil {
		return firstBackoff, fmt.Errorf("an access token could not be written into Redis: %w", err)
	}
	if number == "0" { // it took too long, or the reply to the first try was lost: the next check tells
		return look, nil
	}
	k.use(&Token{Text: got.Token, number: number, renew: asked.Add(renew), end: asked.Add(life)})
	k.cfg.Log.Info("access token fetched", "lives", life.Round(time.Second))
	return 0, nil
}

// failed records that there is no token. A stop of this process, or a fault of its machine, does not keep others
// from trying.
func (k *Keeper) failed(ctx context.Context, stopped bool, got Answer, why error) (time.Duration, error) {
	most := k.cfg.Backoff
	switch {
	case stopped || got.Local:
		most = 0
	case got.Refused:
		most = max(most, mostRefused)
	}
	err := fmt.Errorf("no access token: %w", why)
	us, told := failedScript.Run(ctx, k.cfg.Redis, k.keys, 0, k.owner, min(firstBackoff, k.cfg.Backoff).Microseconds(), most.Microseconds(),
		got.Wait.Microseconds(), rand.Float64()/4, err.Error()).Int64()
	if told != nil || us <= 0 {
		return firstBackoff, err
	}
	return time.Duration(us) * time.Microsecond, err
}

// Standing says why a gateway has no access token.
type Standing struct {
	// Why begins with "no access token". It is empty if there is one, or if none was requested.
	Why string
	// Again is when the next try is due.
	Again time.Time
}

// Look returns why a gateway has no access token.
func Look(ctx context.Context, c redis.Scripter, gateway string) (Standing, error) {
	v, err := lookScript.Run(ctx, c, []string{redisdb.NewKeys(gateway).Access()}, 0).StringSlice()
	if err != nil {
		return Standing{}, fmt.Errorf("whether %s has an access token could not be read: %w", gateway, err)
	}
	if len(v) != 2 {
		return Standing{}, nil
	}
	us, err := strconv.ParseInt(v[1], 10, 64)
	if err != nil {
		return Standing{}, redisdb.BadReply("look.lua", v)
	}
	return Standing{Why: v[0], Again: time.UnixMicro(us)}, nil
}
