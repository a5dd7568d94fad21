package bucket

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// heardWithin is how old a question that Redis answered may be when a call goes out late, beside the time that an answer takes.
	heardWithin = 100 * time.Millisecond
	// touchWithin is how long a late call waits for an answer, beside that time.
	touchWithin = 50 * time.Millisecond
)

// Heard notes that Redis answered a question about this gateway that was asked at that moment. An answer may wait in the machine's memory
// while the process stands still: so it is the question that counts.
func (p *Pacer) Heard(asked time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = max(p.asked, p.local(asked))
}

// outOfTouch reports that Redis may be out of reach: the last question that it answered is too long ago. The caller holds mu.
func (p *Pacer) outOfTouch(now time.Time) bool {
	return p.local(now)-p.asked > heardWithin.Microseconds()+p.distance(now)
}

// distance is the time that Redis needs for an answer, at the least, in µs.
func (p *Pacer) distance(now time.Time) int64 {
	at := p.local(now)
	return p.bounds.notAfter(at) - p.bounds.earliest(at)
}

// touch asks Redis for a sign of life and waits for it: one question for all who want to know.
func (p *Pacer) touch() {
	p.mu.Lock()
	asking, over := p.touching, make(chan struct{})
	if asking == nil {
		p.touching = over
	}
	p.mu.Unlock()
	if asking != nil {
		<-asking
		return
	}
	begun := p.clock.Now()
	ctx, cancel := context.WithTimeout(context.Background(), touchWithin+time.Duration(p.distance(begun))*time.Microsecond)
	defer cancel()
	if p.client.Process(ctx, redis.NewIntCmd(ctx, "exists", p.keys.Pace())) == nil {
		p.Heard(begun)
	}
	p.mu.Lock()
	p.touching = nil
	p.mu.Unlock()
	close(over)
}
