package bucket

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// clockBounds knows how far Redis's clock is from the local one: theta = Redis - local, between lo and hi, all in µs.
// Every answer of Redis, sent at t0 and received at t1 with Redis's time R in it, proves R - t1 <= theta <= R - t0.
// What was learned widens with its age by drift, as no two clocks run alike. Calls are written and counted by bounds that widen by unseen,
// and so are true while a clock is slewed by less than its answers can show yet.
//
// An answer may contradict what was learned. Then Redis's clock goes faster or slower than it should, as clocks do that are being put
// right, and how far it has gained is kept in gains; or, where no clock goes so fast, it was set. With that an era begins: no moment
// of an earlier one means anything on the clock as it is now.
//
// A clock that is put right moves by as much as the way to Redis takes before an answer contradicts, and it may have moved on since the last one
// that did. So for a while nothing counts but the newest answer.
type clockBounds struct {
	mu         sync.Mutex
	known      bool
	era        int64 // how often the clock was seen to have been set
	begun      int64 // local µs at which the first answer was asked for
	since      int64 // local µs at which the first answer of this era came
	lo, hi     int64
	loAt, hiAt int64  // local µs at which each was asked for: the clocks may have drifted since
	near       span   // the same, from few and recent answers
	last       answer // the newest one
	fast, slow slew
	gains      gains
	total      int64 // of all gains
}

// answer is what one answer of Redis proves.
type answer struct{ sent, received, lo, hi int64 }

// span is the bounds of theta, each with the local moment at which it was asked for, in µs.
type span struct{ lo, hi, loAt, hiAt int64 }

// slew is how fast Redis's clock was seen to gain, or lose, by what an answer contradicted; it counts until a local moment. Until doubt, the clock may
// have gained or lost more than was seen, as much as the answers since then left open; 0 means that it never did since all that is known.
type slew struct{ ppm, until, doubt, open int64 }

const (
	drift      = 100            // ppm: any two clocks differ by up to this
	unseen     = 10_000         // ppm: a clock may be slewed by up to this without an answer contradicting it
	mostUnseen = 20_000         // µs: the largest gain that other processes may have missed, if Redis answers them within that time
	mostSlew   = 100_000        // ppm: no clock is corrected faster than this
	slewLasts  = 1_000_000      // µs: after this long without a contradiction the clock's rate counts as right again
	doubted    = 60 * slewLasts // µs: for this long after one it may go on unseen
	driftSlack = 1000           // µs: a gap below this is always drift; above it the clock may have been set
	bygone     = -1             // the era of an answer that came after one of a later era; never the current era
)

// observe adds one answer. leap is how far Redis's clock has been set forward (or back, if negative) since the
// last one; 0 if it hasn't. era is the one that the answer belongs to.
func (b *clockBounds) observe(sent, received, redis int64) (leap, era int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := answer{sent, received, redis - received - 1, redis + 1 - sent}
	lo, hi := b.steady(received)
	gained, lost := a.lo-hi, lo-a.hi // at least
	switch {
	case !b.known:
		b.known, b.begun, b.since = true, sent, received
		b.reset(a)
	case b.isLeap(a) && sent < b.since: // it is not known which of the two came first: the next answer tells
		return 0, bygone
	case b.isLeap(a):
		leap = gained
		if lost > 0 {
			leap = -lost
			b.gains.back(lost)
		}
		b.era, b.since = b.era+1, received
		b.reset(a)
	case gained > 0:
		b.fast.note(a.hi-b.hi, received-b.hiAt, received)
		b.gains.add(gain{received, a.hi - b.hi, redis}, received)
		b.total += a.hi - b.hi
		b.reset(a)
	case lost > 0:
		b.slow.note(b.lo-a.lo, received-b.loAt, received)
		b.reset(a)
	case b.settles(received):
		b.fast, b.slow = slew{}, slew{}
		b.reset(a)
	default:
		b.refine(a, lo, hi)
	}
	b.near.refine(a)
	b.last = a
	b.fast.open, b.slow.open = max(b.fast.open, a.hi-a.lo), max(b.slow.open, a.hi-a.lo)
	return leap, b.era
}

func (b *clockBounds) reset(a answer) {
	b.lo, b.hi, b.loAt, b.hiAt = a.lo, a.hi, a.sent, a.sent
	b.near = span{a.lo, a.hi, a.sent, a.sent}
}

// refine takes over the bounds that an answer proves more tightly.
func (s *span) refine(a answer) {
	lo, hi := s.slewed(a.received)
	if a.lo >= lo {
		s.lo, s.loAt = a.lo, a.sent
	}
	if a.hi <= hi {
		s.hi, s.hiAt = a.hi, a.sent
	}
}

// slewed returns the bounds, widened to the local moment now, assuming that the clock may be slewed by unseen.
func (s *span) slewed(now int64) (lo, hi int64) {
	return s.lo - age(s.loAt, now, unseen), s.hi + age(s.hiAt, now, unseen)
}

// refine takes over the bounds that an answer proves more tightly than those of now. If the next answers show
// that a gain was smaller than it seemed, it is reduced.
func (b *clockBounds) refine(a answer, lo, hi int64) {
	if a.lo >= lo {
		b.lo, b.loAt = a.lo, a.sent
	}
	if a.hi <= hi {
		if b.fast.until > a.received {
			b.total -= b.gains.less(b.hi - a.hi)
		}
		b.hi, b.hiAt = a.hi, a.sent
	}
}

// isLeap reports whether Redis's clock went ahead or back since the known answers by more than its rate allows.
func (b *clockBounds) isLeap(a answer) bool {
	beyond := func(gap, since int64) bool { return gap > (a.received-since)*mostSlew/1_000_000+driftSlack }
	return beyond(a.lo-b.hi, b.hiAt) || beyond(b.lo-a.hi, b.loAt) || beyond(a.lo-b.last.hi, b.last.sent) || beyond(b.last.lo-a.hi, b.last.sent)
}

// note takes in that the clock gained gained µs within took µs.
func (s *slew) note(gained, took, now int64) {
	ppm := min(gained*1_000_000/max(took, 1), mostSlew)
	if s.until > now {
		ppm = max(ppm, s.ppm)
	}
	s.ppm, s.until, s.doubt, s.open = ppm, now+slewLasts, now+doubted, 0
}

// most is how fast the clock can gain, or lose, at a local moment, as far as is known: what has stayed unseen ever since the last contradiction moved it by
// no more than an answer leaves open.
func (s slew) most(now int64) int64 {
	if s.doubt == 0 {
		return drift
	}
	since := now - (s.until - slewLasts)
	if since < slewLasts {
		return mostSlew
	}
	return min(drift+2*s.open*1_000_000/since, mostSlew)
}

// settles reports whether the last slew is so long ago that the newest answer shows its whole effect. The
// caller holds mu.
func (b *clockBounds) settles(now int64) bool {
	doubt := max(b.fast.doubt, b.slow.doubt)
	return doubt > 0 && now >= doubt
}

// rate returns the rate at a local moment, in ppm.
func (s slew) rate(now int64) int64 {
	if s.until > now {
		return s.ppm
	}
	return 0
}

// age is how much the distance of two clocks may have changed since then.
func age(since, now, ppm int64) int64 { return max(now-since, 0)*ppm/1_000_000 + 1 }

// steady returns the bounds widened to the local moment now, if the clock's rate is right. The caller holds mu.
func (b *clockBounds) steady(now int64) (lo, hi int64) {
	return b.lo - age(b.loAt, now, drift), b.hi + age(b.hiAt, now, drift)
}

// wide returns the bounds widened to the local moment now, at the clock's actual rate. The caller holds mu.
func (b *clockBounds) wide(now int64) (lo, hi int64) {
	if b.fast.doubt+b.slow.doubt > 0 {
		return b.last.lo - age(b.last.sent, now, b.slow.most(now)), b.last.hi + age(b.last.sent, now, b.fast.most(now))
	}
	return b.near.slewed(now)
}

// notBefore returns the local moment at which Redis's clock shows at least redis, as far as is known at now. It
// includes the widening of the bounds until that moment.
func (b *clockBounds) notBefore(redis, now int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	lo, _ := b.wide(now)
	wait := max(redis-lo-now, 0)
	return redis - lo + age(0, wait, unseen+b.slow.rate(now))
}

// earliest returns the least that Redis's clock can show at the local moment now.
func (b *clockBounds) earliest(now int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	lo, _ := b.wide(now)
	return now + lo
}

// notAfter returns the latest that Redis's clock can show at the local moment now.
func (b *clockBounds) notAfter(now int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, hi := b.wide(now)
	return now + hi + 1
}

// current reports whether moments of this era are on Redis's clock as it is.
func (b *clockBounds) current(era int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return era == b.era
}

// gained returns how much Redis's clock has gained in the before µs until now. Setting the clock does not
// count.
func (b *clockBounds) gained(before, now int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gains.after(now - before)
}

// unwatched returns how much Redis's clock may have gained in the before µs until now, in the part before this
// process watched it: no process can report what it had not seen itself.
func (b *clockBounds) unwatched(before, now int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known {
		before -= now - b.begun
	}
	return min(max(before, 0)*max(unseen, b.fast.rate(now))/1_000_000, mostUnseen)
}

// watched returns what reserve.lua is told of the clock: the time in the newest answer; the gains seen in the
// before µs until now, with their moments; the gain expected in the after µs from now; and the number of the
// process that watches. Old gains that are close together are merged, at the later moment.
func (b *clockBounds) watched(number, before, after, now int64) []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text strings.Builder
	var begin, latest, by int64
	flush := func() {
		if by > 0 {
			fmt.Fprintf(&text, "%d %d ", latest, by)
		}
		by = 0
	}
	for _, one := range b.gains {
		if one.at <= now-before {
			continue
		}
		if old := now - one.at; by > 0 && (old < young || one.at-begin > old/sameAge) {
			flush()
		}
		if by == 0 {
			begin = one.at
		}
		latest, by = one.redis, by+one.by
	}
	flush()
	return []any{max(b.last.received+b.last.lo+1, 0), text.String(), after * b.fast.rate(now) / 1_000_000, number}
}

// seen returns how much Redis's clock has gained so far, and will gain in the after µs from now, as far as is
// known.
func (b *clockBounds) seen(after, now int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total + after*b.fast.rate(now)/1_000_000
}

// coming returns how much Redis's clock will gain in the after µs from now, as far as is known.
func (b *clockBounds) coming(after, now int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return after * b.fast.rate(now) / 1_000_000
}

// gain is how much Redis's clock was seen to have gained on the local one by a local moment, and what it showed
// then, in µs.
type gain struct{ at, by, redis int64 }

// gains has the newest last. When there are many, those that are closest together for their age are merged, at
// the later moment.
type gains []gain

const (
	mostGains = 256
	sameGain  = 10_000     // µs
	sameAge   = 8          // gains of about the same age are merged within this part of it
	young     = 10_000_000 // µs; younger ones are reported one by one
)

func (g *gains) add(one gain, now int64) {
	if n := len(*g); n > 0 && one.at-(*g)[n-1].at < sameGain {
		(*g)[n-1].by += one.by
		return
	}
	*g = append(*g, one)
	if len(*g) <= mostGains {
		return
	}
	nearest := func(i int) float64 { return float64((*g)[i+1].at-(*g)[i].at) / float64(now-(*g)[i+1].at+1) }
	best := 0
	for i := range len(*g) - 2 {
		if nearest(i) < nearest(best) {
			best = i
		}
	}
	(*g)[best+1].by += (*g)[best].by
	*g = append((*g)[:best], (*g)[best+1:]...)
}

// less takes up to by off the newest gain, and returns how much it took.
func (g gains) less(by int64) int64 {
	n := len(g)
	if n == 0 || by <= 0 {
		return 0
	}
	by = min(by, g[n-1].by)
	g[n-1].by -= by
	return by
}

// back shifts the moments of the gains to the clock as it is after it was set back.
func (g gains) back(by int64) {
	for i := range g {
		g[i].redis -= by
	}
}

func (g gains) after(moment int64) (sum int64) {
	for _, one := range g {
		if one.at > moment {
			sum += one.by
		}
	}
	return sum
}

// local is a recent moment in µs since the pacer began: by the monotonic clock, which stands still while the
// machine is suspended, plus the time of suspension.
func (p *Pacer) local(t time.Time) int64 { return t.Sub(p.began).Microseconds() + p.suspended() }

// leastSleep is the shortest suspension that counts, in µs: the two clocks that show it are not read at the
// same moment.
const leastSleep = 10_000

// suspended is how long the machine was suspended since the pacer began, in µs.
func (p *Pacer) suspended() int64 {
	for {
		known, now := p.slept.Load(), (p.asleep() - p.sleptFirst).Microseconds()
		if now < known+leastSleep {
			return known
		}
		p.slept.CompareAndSwap(known, now)
	}
}
