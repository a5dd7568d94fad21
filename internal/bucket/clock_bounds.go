package bucket

import "sync"

// clockBounds knows how far Redis's clock is from the local one: theta = Redis - local, between lo and hi, all in µs.
// Every answer of Redis, sent at t0 and received at t1 with Redis's time R in it, proves R - t1 <= theta <= R - t0.
// What was learned widens with its age by drift, as no two clocks run alike.
type clockBounds struct {
	mu         sync.Mutex
	known      bool
	lo, hi     int64
	loAt, hiAt int64 // local µs at which each was asked for: the clocks may have drifted since
}

const (
	driftPerMicro = 10000 // 1 µs in so many: 100 ppm
	driftSlack    = 1000  // a gap below 1 ms is drift, above it the clock was set
)

// observe adds one answer. leap is how far Redis's clock has been set forward (or back, negative) since the last one,
// 0 if it hasn't.
func (b *clockBounds) observe(sent, received, redis int64) (leap int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lo, hi := redis-received-1, redis+1-sent
	oldLo, oldHi := b.at(received)
	switch {
	case b.known && lo > oldHi:
		leap = lo - oldHi
	case b.known && hi < oldLo:
		leap = hi - oldLo
	}
	if !b.known || leap != 0 {
		b.known, b.lo, b.hi, b.loAt, b.hiAt = true, lo, hi, sent, sent
		if leap > -driftSlack && leap < driftSlack {
			return 0
		}
		return leap
	}
	if lo >= oldLo {
		b.lo, b.loAt = lo, sent
	}
	if hi <= oldHi {
		b.hi, b.hiAt = hi, sent
	}
	return 0
}

// at returns the bounds as wide as they are at the local moment now. The caller holds mu.
func (b *clockBounds) at(now int64) (lo, hi int64) {
	return b.lo - max(now-b.loAt, 0)/driftPerMicro - 1, b.hi + max(now-b.hiAt, 0)/driftPerMicro + 1
}

// notBefore returns the local moment at which Redis's clock shows at least redis, as far as is known at now. The
// bounds' widening until that moment is in it.
func (b *clockBounds) notBefore(redis, now int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	lo, _ := b.at(now)
	wait := max(redis-lo-now, 0)
	return redis - lo + wait/driftPerMicro + 1
}

// earliest returns the least that Redis's clock can show at the local moment now.
func (b *clockBounds) earliest(now int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	lo, _ := b.at(now)
	return now + lo
}

// notAfter returns the latest that Redis's clock can show at the local moment now.
func (b *clockBounds) notAfter(now int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, hi := b.at(now)
	return now + hi + 1
}
