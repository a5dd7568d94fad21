package verify

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// queued is a job's position in the order in which jobs should be called, and when it was called.
type queued struct {
	order, first int64
	id           string
	file         int
	line         int64
}

// lineUp adds a job to its queue: that of its gateway, batch, route, class and lane.
func (c *checker) lineUp(a *account) error {
	b := a.book
	if c.Slack < 0 || a.calls == 0 || b.replays > 0 {
		return nil
	}
	order := b.accepted
	if c.Ordered {
		order = int64(a.bookFile)<<40 | a.booked[0].Line
	}
	if order == 0 {
		return nil
	}
	c.result.Ordered++
	key := packed(nil)
	for _, part := range []string{a.gateway, b.batch, b.route, b.priority, b.lane} {
		key = append(append(key, part...), 0)
	}
	// The last job comes first, so that the calls of later jobs are known.
	value := packed(nil).int(order).int(a.first).text(a.id).int(int64(a.bookFile)).int(a.booked[0].Line)
	return c.queue.put(key.sorted(^order).sorted(a.first), value)
}

// judgeOrder walks each queue from its end, and looks for jobs that were called long after a later one.
func (c *checker) judgeOrder(ctx context.Context) error {
	var of []byte
	var behind, alike *queued // of the later jobs: the one called first; and the same of those whose order is unknown
	return c.queue.each(ctx, func(key, value []byte) error {
		const numbers = 2 * 8
		if group := key[:len(key)-numbers]; !bytes.Equal(group, of) {
			of, behind, alike = append(of[:0], group...), nil, nil
		}
		p := packed(value)
		q := &queued{order: p.takeInt(), first: p.takeInt(), id: p.takeText(), file: int(p.takeInt()), line: p.takeInt()}
		if alike != nil && alike.order != q.order {
			if behind == nil || alike.first < behind.first {
				behind = alike
			}
			alike = nil
		}
		if behind != nil && q.first-behind.first > c.Slack.Microseconds() {
			late := time.Duration(q.first-behind.first) * time.Microsecond
			gateway, _, _ := bytes.Cut(of, []byte{0})
			c.found(Finding{Kind: Order, Gateway: string(gateway), ID: q.id, Where: []Place{c.place(q.file, q.line), c.place(behind.file, behind.line)},
				Text: fmt.Sprintf("first called %s, %s after %s, which stands behind it", moment(q.first), late, behind.id)})
		}
		if alike == nil || q.first < alike.first {
			alike = q
		}
		return nil
	})
}
