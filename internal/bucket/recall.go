package bucket

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

// SetLive is what was set live for the lanes and routes of a gateway, as one process has seen it last. The zero
// SetLive has seen nothing. It is not safe for concurrent use.
type SetLive struct {
	seen bool
	at   liveAt
	all  map[string]string // text by lane:NAME or route:NAME
	gone map[string]string // what was set before and has been reset
}

// liveAt says which changes of lanes and routes Redis knows: the number version of this epoch, which begins
// when the first one is written. Zero if it knows none.
type liveAt struct{ epoch, version int64 }

// recallChunk is for how many lanes and routes one script restores what was set: that takes Redis a few
// milliseconds.
const recallChunk = 200

// Recall keeps up with what is set live for lanes and routes. If Redis has lost what this process has seen,
// Recall restores it: after FLUSHALL, after a restore of an older snapshot, and if the key was deleted. What
// Redis has of other lanes stays. It returns for how many lanes and routes it restored something.
func (p *Pacer) Recall(ctx context.Context, s *SetLive) (told int, err error) {
	at, n, err := p.liveAt(ctx)
	if err != nil || s.seen && at == s.at && n == int64(len(s.all)) {
		return 0, err
	}
	all, err := p.overrides(ctx) // older than the version: what is set meanwhile is read again
	if err != nil {
		return 0, err
	}
	if missing := s.missing(at, all); len(missing) > 0 {
		if told, err = p.tellAgain(ctx, missing, at, liveAt{cmp.Or(at.epoch, s.at.epoch), max(at.version, s.at.version) + 1}); err != nil {
			return told, err
		}
		if at, _, err = p.liveAt(ctx); err == nil {
			all, err = p.overrides(ctx)
		}
	}
	if err == nil {
		s.learn(at, all)
	}
	return told, err
}

// learn takes in what Redis has.
func (s *SetLive) learn(at liveAt, all map[string]string) {
	if s.gone == nil || at.epoch != s.at.epoch {
		s.gone = map[string]string{}
	}
	maps.Copy(s.gone, s.all)
	maps.DeleteFunc(s.gone, func(of, _ string) bool { _, there := all[of]; return there })
	s.seen, s.at, s.all = true, at, all
}

func (p *Pacer) overrides(ctx context.Context) (map[string]string, error) {
	all, err := p.client.HGetAll(ctx, p.keys.Overrides()).Result()
	if err != nil {
		return nil, fmt.Errorf("what was set live for lanes and routes of %s could not be read: %w", p.gateway, err)
	}
	return all, nil
}

// missing returns what this process has seen set and Redis has lost; all is everything that Redis has now. An
// operator's change since the loss takes precedence over what was seen before it.
func (s *SetLive) missing(now liveAt, all map[string]string) map[string]string {
	if !s.lost(now, len(all)) {
		return nil
	}
	missing := map[string]string{}
	for of, text := range s.all {
		if is, there := all[of]; !there || now.epoch == s.at.epoch && is != text {
			missing[of] = text
		}
	}
	for of, text := range s.gone {
		if now.epoch == s.at.epoch && all[of] == text {
			missing[of] = "" // it was reset, and the loss has brought it back
		}
	}
	return missing
}

// lost reports whether Redis, which has n entries of these changes now, has lost some that this process has
// seen.
func (s *SetLive) lost(now liveAt, n int) bool {
	if n == 0 && now == s.at {
		return true
	}
	return s.at.epoch != 0 && (now.epoch != s.at.epoch || now.version < s.at.version)
}

func (p *Pacer) liveAt(ctx context.Context) (at liveAt, n int64, err error) {
	var known *redis.SliceCmd
	var size *redis.IntCmd
	_, err = p.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		known, size = pipe.HMGet(ctx, p.keys.Lanes(), "oe", "ov"), pipe.HLen(ctx, p.keys.Overrides())
		return nil
	})
	if err != nil {
		return at, 0, fmt.Errorf("what was set live for lanes and routes of %s could not be read: %w", p.gateway, err)
	}
	for i, to := range []*int64{&at.epoch, &at.version} {
		if text, is := known.Val()[i].(string); is {
			f, _ := strconv.ParseFloat(text, 64)
			*to = int64(f)
		}
	}
	return at, size.Val(), nil
}

// tellAgain restores in Redis, which is at now, what it has lost; with all of it restored it is at then. If
// something is set meanwhile, the rest is restored the next time.
func (p *Pacer) tellAgain(ctx context.Context, missing map[string]string, now, then liveAt) (told int, err error) {
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(missing)), recallChunk) {
		to := now
		if told+len(chunk) == len(missing) {
			to = then
		}
		args := []any{now.epoch, now.version, to.epoch, to.version, redisdb.Wake, p.gateway}
		for _, of := range chunk {
			args = append(args, of, missing[of])
		}
		done, err := recallScript.Run(ctx, p.client, []string{p.keys.Pace(), p.keys.Nobodys()}, args...).Int64()
		if err != nil || done == 0 {
			return told, err
		}
		told += len(chunk)
	}
	return told, nil
}
