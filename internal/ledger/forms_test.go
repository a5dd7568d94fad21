package ledger_test

import (
	"slices"
	"strings"
	"testing"

	"spillway/internal/job"
)

// Redis makes the messages of a chunk's tasks from one form for each length. They are exactly what Encode makes, whatever the
// ids, and whether the chunk is plain or not.
func TestTheMessagesOfAChunkAreWhatEncodeMakes(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{"plain": nil, "not plain": {"a~2", "~~", "a~1~1"}} {
		b := setup(t, 500, nil)
		ids := slices.Concat(more, []string{"a", "b", "7", "%d%s", `"\`, "{x}", "spillway:job", "a:b", "'", b.name})
		for _, n := range []int{2, 9, 10, 99, 123, 124, 125, 126, 127, 128, 129, 199, 200} {
			ids = append(ids, strings.Repeat("x", n), strings.Repeat("}", n), strings.Repeat("z", n-1)+"1")
		}
		jobs := make([]job.Job, len(ids))
		for i, id := range ids {
			jobs[i] = job.Job{ID: id, Payload: []byte(`{}`)}
		}
		for i, answer := range b.accept("park", jobs...) {
			task := job.TaskID(ids[i], 1)
			msg, err := b.cfg.Encode(task)
			if err != nil {
				t.Fatal(err)
			}
			if got := b.c.HGet(b.ctx, b.keys.Task(task), "msg").Val(); answer != job.Enqueued || got != string(msg) {
				t.Errorf("%s, %q: %v, with the message %q and not %q", name, ids[i], answer, got, msg)
			}
		}
		queue := b.c.LRange(b.ctx, b.keys.Pending(), 0, -1).Val()
		slices.Reverse(queue)
		for i, id := range ids {
			if queue[i] != job.TaskID(id, 1) {
				t.Errorf("%s, place %d of the queue: %q, not %q", name, i, queue[i], id)
			}
		}
	}
}
