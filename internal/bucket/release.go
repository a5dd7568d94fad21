package bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Empty says that dequeues found no job: their slots, and every slot still held locally, are given back.
// Without a slot, or with the zero Slot, it gives back only the local ones. It waits for Redis's answer or the
// end of ctx.
func (p *Pacer) Empty(ctx context.Context, unused ...job.Slot) {
	_ = p.Release(ctx, append(p.takeLocal(), unused...)...) // their permits stay taken, which is safe
}

// Close ends Next and Take, gives back the slots held locally, and waits for late reports until ctx ends. It
// may be called twice.
func (p *Pacer) Close(ctx context.Context) {
	p.mu.Lock()
	first := !p.done
	if first {
		close(p.closed)
	}
	p.mu.Unlock()
	if first {
		p.Empty(ctx, job.Slot{})
	}
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		p.work.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	p.congestion.close()
}

// Release gives unused slots back, with their leases. They must not be used afterwards. After an error their
// permits may stay taken: that many calls fewer are made, and the limits still hold.
func (p *Pacer) Release(ctx context.Context, slots ...job.Slot) error {
	return p.release(ctx, slices.DeleteFunc(slices.Clone(slots), job.Slot.Zero))
}

// takeLocal empties the FIFO.
func (p *Pacer) takeLocal() []job.Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	slots := p.fifo
	p.fifo = nil
	return slots
}

// Drop gives back every slot that is held locally, in the background: it does not wait for Redis.
func (p *Pacer) Drop() { p.giveBack(p.takeLocal()) }

// giveBack releases slots in the background.
func (p *Pacer) giveBack(slots []job.Slot) {
	if len(slots) > 0 {
		p.unused(slots)
		p.background(func() { _ = p.releaseNow(slots) })
	}
}

// unused records that slots are given back, and whether they have passed.
func (p *Pacer) unused(slots []job.Slot) {
	now, pl := p.bounds.notAfter(p.local(p.clock.Now())), p.plan.Load()
	p.mu.Lock()
	if slices.ContainsFunc(slots, func(s job.Slot) bool { return s.At == p.latest }) {
		p.latest = 0 // the next slot may be as early as this one
	}
	p.mu.Unlock()
	for _, s := range slots {
		passed := p.bounds.current(s.Era) && now > s.At+pl.tooLate
		if p.congestion.unused(s, passed, pl.inHand); passed {
			p.congestion.all.ready(now-s.At, pl.tooLate)
		}
	}
}

func (p *Pacer) release(ctx context.Context, slots []job.Slot) error {
	if len(slots) == 0 {
		return nil
	}
	p.unused(slots)
	var err error
	over := p.background(func() { err = p.releaseNow(slots) })
	select {
	case <-over:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// releaseNow gives back slots. Of those of another era it gives back only the leases: their permits have other
// moments by now, or none.
func (p *Pacer) releaseNow(slots []job.Slot) error {
	var current, bygone []job.Slot
	for _, s := range slots {
		if p.bounds.current(s.Era) {
			current = append(current, s)
		} else {
			bygone = append(bygone, s)
		}
	}
	var err error
	if slices.ContainsFunc(slots, func(s job.Slot) bool { return s.Flow.Kept }) {
		err = p.unbind(slots)
	}
	err = errors.Join(err, p.releaseOf(p.plan.Load().shape, current), p.releaseOf("", bygone))
	if err != nil {
		p.endLater(slots)
	}
	return err
}

// releaseOf runs release.lua for slots of one shape. The latest slot goes first, so that the spacing is given
// back for a whole row.
func (p *Pacer) releaseOf(shape string, slots []job.Slot) error {
	if len(slots) == 0 {
		return nil
	}
	pl := p.plan.Load()
	keys := append([]string{p.keys.Pace(), p.keys.Hold(), p.keys.Flight()}, p.lists(len(pl.windows))...)
	args := []any{pl.spacing, shape, pl.tooLate - pl.epsilon, len(pl.windows)}
	for _, w := range pl.windows {
		args = append(args, w.width)
	}
	for i := len(slots) - 1; i >= 0; i-- {
		args = append(args, slots[i].At, p.late.edge(slots[i]), slots[i].Cost, slots[i].Lease, slots[i].StateID)
	}
	p.late.forget(slots...)
	ctx, cancel := p.within(context.Background(), answerWithin)
	defer cancel()
	freed, err := releaseScript.Run(ctx, p.client, keys, args...).Int64()
	if err != nil {
		p.meters.lost.Add(int64(len(slots)))
		return err
	}
	p.meters.released.Add(int64(freed))
	if freed > 0 {
		p.sooner()
	}
	if shape == "" {
		p.meters.lost.Add(int64(len(slots)))
	}
	return nil
}

// Trim gives back the units of a slot that its job does not need, and returns the slot with its new cost. After
// an error it is not known which cost Redis counts: the slot must not be used, but be released as Trim returns
// it, which frees its place in flight and leaves its permits taken. A slot that comes with its job has the cost
// of the job.
func (p *Pacer) Trim(ctx context.Context, s job.Slot, need int64) (job.Slot, error) {
	if need = max(need, 1); s.Cost <= need || s.Flow.Kept || !p.bounds.current(s.Era) {
		return s, nil
	}
	pl := p.plan.Load()
	keys := append([]string{p.keys.Pace()}, p.lists(len(pl.windows))...)
	args := []any{pl.spacing, pl.shape, s.At, p.late.edge(s), s.Cost, need, s.StateID}
	for _, w := range pl.windows {
		args = append(args, w.width)
	}
	within, cancel := p.within(ctx, answerWithin)
	defer cancel()
	done, err := trimScript.Run(within, p.client, keys, args...).Bool()
	if err != nil {
		s.StateID = unknownState // perhaps they were given back: Release must not take them from other calls
		return s, fmt.Errorf("units of a slot of %s could not be given back: %w", p.gateway, err)
	}
	if done {
		s.Cost = need
		p.sooner()
	}
	return s, nil
}

// unknownState is the state of a slot whose permits Redis must not look for: no state has it.
const unknownState = -1

// sooner says that the next slot may be earlier than Redis said.
func (p *Pacer) sooner() {
	select {
	case p.spare <- struct{}{}:
	default:
	}
}

func (p *Pacer) end(s job.Slot, probe bool) error {
	within, cancel := p.within(context.Background(), answerWithin)
	defer cancel()
	var err error
	if s.Flow.Marks != 0 {
		err = p.endIn(within, s)
	}
	if err == nil && (s.Lease != "" || probe) {
		err = endScript.Run(within, p.client, []string{p.keys.Flight(), p.keys.Hold()}, s.Lease, s.At).Err()
	}
	return err
}

// endLater frees the places of slots among the calls in flight once Redis can be reached: until their leases
// expire, others would wait for calls that are over. To free a place twice does no harm.
func (p *Pacer) endLater(slots []job.Slot) {
	slots = slices.DeleteFunc(slices.Clone(slots), func(s job.Slot) bool { return s.Lease == "" && s.Flow.Marks == 0 })
	if len(slots) == 0 || p.over() {
		return
	}
	expired := p.clock.Now().Add(time.Duration(p.plan.Load().outlives) * time.Microsecond)
	p.background(func() {
		for wait := lateRetries; len(slots) > 0 && p.clock.Now().Before(expired); wait = min(2*wait, time.Second) {
			if p.sleep(context.Background(), wait, nil) != nil {
				return
			}
			slots = slices.DeleteFunc(slots, func(s job.Slot) bool {
				err := p.end(s, false)
				return err == nil || !redisdb.Away(err)
			})
		}
		p.Wake()
	})
}

// unanswered accounts for a reservation whose outcome is unknown: its permits count as used, and its leases,
// which would never be ended, are removed as far as possible.
func (p *Pacer) unanswered(w wish, lease string, err error) {
	if refusedByRedis(err) || w.want == 0 {
		return
	}
	p.meters.lost.Add(int64(w.want))
	p.mu.Lock()
	leased := p.known.leased || p.plan.Load().cfg.MaxInFlight > 0
	p.mu.Unlock()
	if !leased {
		return
	}
	leases := make([]any, w.want)
	for i := range leases {
		leases[i] = lease + ":" + strconv.Itoa(i+1)
	}
	p.background(func() {
		ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
		defer cancel()
		_ = p.client.ZRem(ctx, p.keys.Flight(), leases...).Err() // or they expire by themselves
	})
}

// refusedByRedis reports whether the answer proves that the script changed nothing, or never got there.
func refusedByRedis(err error) bool {
	var answered redis.Error
	return errors.As(err, &answered)
}
