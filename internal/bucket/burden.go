package bucket

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	burdenLeast  = 16                     // slots in hand of a process that is too slow for its gateways
	burdenFirst  = 64                     // the bound begins here, and doubles as it is used until something is late
	burdenSteps  = 4                      // by so much the bound rises while as many slots are used as it allows
	burdenCut    = 0.8                    // to such a part it falls when one of burdenMany jobs is late, or one of burdenFew slots has passed
	burdenLost   = 0.5                    // and to such a part when one of burdenMany slots has passed
	burdenMany   = 8                      // single ones are late because of a neighbour, or a pause of the garbage collector
	burdenFew    = 128                    // slots that pass are work for nothing
	burdenEvery  = 100 * time.Millisecond // so often that is looked at
	burdenJobs   = 16                     // and for so many jobs
	burdenLate   = 8                      // a job is late that is ready by such a part of the last moment after its slot,
	burdenTrips  = 4                      // and by so many answers of Redis: the slots come with one, and a job is pulled and claimed by two
	burdenRecent = 10 * time.Second       // a process that had to wait so lately is overloaded
	burdenWait   = 10 * time.Second       // where nobody has had his turn for so long, slots in hand were never counted out, of a gateway that asks no more
)

// Burden bounds how many slots a process has in hand, over all of its gateways: those that are reserved, and whose jobs are not ready to be called. With
// hundreds of gateways each of them may do with one slot, and all together be more than the process can do: then jobs are ready late, slots pass, and what is
// given back is work too. So it is the delay that counts, and not only what is lost: where one of eight jobs is ready long after its slot, or one of 128 slots has passed, the bound
// gets a fifth less; where one of eight has passed, it is halved; and jobs that are ready in time make it more again while somebody waits. Those that wait for a slot get it in
// order, however many they are; where nobody has had his turn for ten seconds, each that waited so long gets one. Nil bounds nothing.
type Burden struct {
	mu      sync.Mutex
	bound   float64
	hand    int64 // slots in hand
	asked   int64 // slots that are being asked for
	waiting []*turn
	seen    tally
	cut     time.Time // when the bound fell last; zero: nothing was late yet
	held    time.Time // when somebody had to wait last
	moved   time.Time // when somebody had his turn last
	wait    time.Duration
	away    away // of Redis, for all gateways
	shown   prometheus.Gauge
}

// NewBurden returns the burden of a process. It shows its bound as a metric.
func NewBurden(reg prometheus.Registerer) *Burden {
	b := &Burden{bound: burdenFirst, wait: burdenWait, away: away{careful: true}, shown: prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillway_slots_in_hand_bound",
		Help: "How many slots this process may have in hand, over all its gateways, as it is too slow for more. 0 while it is not."})}
	if reg != nil {
		reg.MustRegister(b.shown)
	}
	return b
}

// Overloaded says whether the process has made calls wait lately because it is too slow for them, and how many slots it may have in hand.
func (b *Burden) Overloaded(now time.Time) (slots int64, is bool) {
	if b == nil {
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(b.bound), !b.cut.IsZero() && now.Sub(b.held) < burdenRecent
}

// answered notes that an answer of Redis has come now, after so many µs.
func (b *Burden) answered(took int64, now time.Time) {
	if b != nil {
		b.away.add(took, now)
	}
}

// enter waits until slots may be asked for, and returns how many, at the most.
func (b *Burden) enter(ctx context.Context, closed <-chan struct{}, want int64) (int64, error) {
	if b == nil {
		return want, nil
	}
	n, mine := b.some(want)
	if n > 0 {
		return n, nil
	}
	limit := time.NewTimer(b.wait)
	defer limit.Stop()
	for {
		select {
		case <-mine.come:
			return mine.gets, nil
		case <-limit.C:
			if left := b.moves(); left > 0 {
				limit.Reset(left)
				continue
			}
			b.give(mine)
			b.leave(-1)
			return 1, nil
		case <-ctx.Done():
			b.give(mine)
			return 0, ctx.Err()
		case <-closed:
			b.give(mine)
			return 0, ErrClosed
		}
	}
}

// moves returns for how long it is still believed that the turn comes to those that wait.
func (b *Burden) moves() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wait - time.Since(b.moved)
}

// tally counts the jobs that were ready since the bound was looked at last.
type tally struct {
	jobs, late, lost int64 // lost: their slots had passed; late: these too
	since            time.Time
}

// part returns to which part the bound falls for them.
func (t tally) part() float64 {
	switch {
	case t.lost*burdenMany >= t.jobs:
		return burdenLost
	case t.late*burdenMany >= t.jobs, t.lost*burdenFew >= t.jobs:
		return burdenCut
	}
	return 1
}

// turn is somebody who waits for slots.
type turn struct {
	want int64
	gets int64         // counted as asked for when it has come
	come chan struct{} // closes then
}

// some returns how many slots may be asked for at once, or a turn to wait for: nobody passes those that wait.
func (b *Burden) some(want int64) (n int64, mine *turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n = min(want, b.room()); n > 0 && len(b.waiting) == 0 {
		b.asked += n
		b.moved = time.Now()
		return n, nil
	}
	mine = &turn{want: want, come: make(chan struct{})}
	b.waiting, b.held = append(b.waiting, mine), time.Now()
	return 0, mine
}

// give is for somebody who waits no longer. Slots that came meanwhile are for the next.
func (b *Burden) give(mine *turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, mine); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		return
	}
	b.asked -= mine.gets
	b.wake()
}

// room is how many slots more may be asked for. The caller holds mu.
func (b *Burden) room() int64 { return int64(b.bound) - b.hand - b.asked }

// leave notes that so many slots are asked for no longer: those that came are in hand.
func (b *Burden) leave(n int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked -= n
	b.wake()
}

// add notes slots more in hand, or fewer.
func (b *Burden) add(n int64) {
	if b == nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hand += n
	b.wake()
}

// wake lets those go that there is room for, first come first, and as many slots each as leave some for the others. The caller holds mu.
func (b *Burden) wake() {
	for room := b.room(); len(b.waiting) > 0 && room > 0; room = b.room() {
		next := b.waiting[0]
		next.gets = min(next.want, max(room/int64(len(b.waiting)), 1))
		b.asked += next.gets
		b.waiting, b.moved = b.waiting[1:], time.Now()
		close(next.come)
	}
}

// ready notes how long after its slot a job was ready, in µs, and up to when the slot was of use. What passed was ready too late. Where Redis is far away, its
// answers alone make jobs late: fewer slots mend nothing there.
func (b *Burden) ready(late, most int64) {
	if b == nil {
		return
	}
	trips := burdenTrips * b.away.is()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.jobs++
	if late > most/burdenLate+trips {
		b.seen.late++
		if late >= most {
			b.seen.lost++
		}
	} else if len(b.waiting) > 0 {
		if b.cut.IsZero() || trips > most/burdenLate {
			b.bound++
		} else {
			b.bound += burdenSteps / b.bound
		}
		b.wake()
	}
	if now := time.Now(); b.seen.jobs >= burdenJobs && now.Sub(b.seen.since) >= burdenEvery {
		b.judge(now)
	}
}

// judge looks at what was seen, and begins anew. The caller holds mu.
func (b *Burden) judge(now time.Time) {
	if part := b.seen.part(); part < 1 {
		b.cut = now
		b.bound = min(b.bound, max(float64(b.hand), burdenFirst))
		b.bound = max(b.bound*part, burdenLeast)
	}
	b.seen = tally{since: now}
	if !b.cut.IsZero() {
		b.shown.Set(b.bound)
	}
}
