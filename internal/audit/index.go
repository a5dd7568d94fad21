package audit

import (
	"hash/maphash"
	"slices"

	"spillway/internal/job"
)

// index knows which tasks are in the queue, by their hashes, in 8 bytes each. A lost task is missed if another has
// the same hash: with a million in the queue, once in 2^44. With several parts, it contains the tasks of one part
// of the jobs.
type index struct {
	seed        maphash.Seed
	part, parts uint64
	tasks       []uint64
}

// mostIndexed is how many tasks an index holds; a longer queue is checked in parts.
const mostIndexed = 4_000_000

func newIndex(queued, most int64) *index {
	if most <= 0 {
		most = mostIndexed
	}
	x := &index{seed: maphash.MakeSeed(), parts: uint64(queued/most) + 1}
	x.tasks = make([]uint64, 0, uint64(max(queued, 0))/x.parts*17/16) // parts are hardly ever larger
	return x
}

// begin empties it for a part.
func (x *index) begin(part uint64) { x.part, x.tasks = part, x.tasks[:0] }

// mine reports whether a job belongs to the current part.
func (x *index) mine(id string) bool {
	return x.parts == 1 || maphash.String(x.seed, id)%x.parts == x.part
}

func (x *index) add(task string) {
	if id, _, ok := job.ParseTaskID(task); ok && x.mine(id) {
		x.tasks = append(x.tasks, maphash.String(x.seed, task))
	}
}

// close ends adding; only then may has be called.
func (x *index) close() { slices.Sort(x.tasks) }

func (x *index) has(task string) bool {
	_, ok := slices.BinarySearch(x.tasks, maphash.String(x.seed, task))
	return ok
}
