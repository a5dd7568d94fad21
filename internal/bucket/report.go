package bucket

import "context"

// Report tells Redis, in the background, which slots this process knows to have been given out. A state that
// begins from nothing asks for it on HoldChannel, and a process that knows of an older state objects in this
// way. A process that knows of none reports nothing.
func (p *Pacer) Report() {
	p.mu.Lock()
	knows := p.known.root != 0
	p.mu.Unlock()
	if !knows {
		return
	}
	p.background(func() {
		ctx, cancel := p.within(context.Background(), answerWithin)
		defer cancel()
		for range 2 { // a state of other limits is first converted to ours
			if g, err := p.reserve(ctx, wish{cost: 1}); err != nil || g.state != stateReshape || p.reshape(ctx) != nil {
				return
			}
		}
	})
}
