package ledger

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"spillway/internal/job"
	"spillway/internal/record"
)

// chunk is an offer of jobs in the form that accept.lua takes. With parking, it is made while Redis still works
// on the previous one.
type chunk struct {
	jobs  []job.Newcomer
	batch string // stored once: most jobs of a chunk have the same
	timed bool   // a job has a time, maybe one that has passed
	forms []any  // templates of the tasks' messages
	text  []byte // all jobs in one argument, which is cheaper for Redis than several arguments each
}

// entryBytes is the approximate size of a job in a chunk's text, without its payload.
const entryBytes = 96

// chunk encodes and seals jobs.
func (b *Books) chunk(jobs []job.Newcomer) (*chunk, error) {
	c, size := &chunk{jobs: jobs}, 0
	if len(jobs) > 0 {
		c.batch = jobs[0].Job.Batch
	}
	for i := range jobs {
		size += entryBytes + len(jobs[i].Job.Payload)
	}
	c.text = make([]byte, 0, size)
	for i := range jobs {
		j := &jobs[i].Job
		c.timed = c.timed || !j.At.IsZero()
		stored, err := b.cfg.Box.Seal(j.ID, payload(*j))
		if err != nil {
			return nil, err
		}
		if c.text, err = appendEntry(c.text, j.ID, b.cfg.Box.Digest(j.ID, jobs[i].Digest), b.moneyOf(jobs[i]), b.traits(j, c.batch), stored); err != nil {
			return nil, err
		}
	}
	var err error
	c.forms, err = b.forms(len(jobs), func(i int) (string, int64) { return jobs[i].Job.ID, 1 })
	return c, err
}

// appendEntry appends a job to the text of a chunk, in the form that accept.lua reads: the lengths of all
// parts, then the parts. A line of a billing file never exceeds what the lengths can hold.
func appendEntry(text []byte, id, digest, money, traits string, payload []byte) ([]byte, error) {
	if len(id) > math.MaxUint8 || max(len(digest), len(money), len(traits)) >= 1<<24 || len(payload) > math.MaxUint32 {
		return nil, fmt.Errorf("job %.64q is too large: its id, its batch, its currency or its payload", id)
	}
	text = append(text, byte(len(id)))
	for _, s := range [...]string{digest, money, traits} {
		text = append(text, byte(len(s)>>16), byte(len(s)>>8), byte(len(s)))
	}
	text = binary.BigEndian.AppendUint32(text, uint32(len(payload))) //nolint:gosec // looked at above
	text = append(append(append(append(text, id...), digest...), money...), traits...)
	return append(text, payload...), nil
}

// forms returns the templates of the messages of n tasks, in the form that forms.lua reads. of returns the job
// and generation of a task.
func (b *Books) forms(n int, of func(i int) (id string, generation int64)) ([]any, error) {
	type size struct {
		id         int
		generation int64
	}
	forms, known := []any{0}, map[size]bool{}
	for i := range n {
		id, generation := of(i)
		if s := (size{len(id), generation}); !known[s] {
			known[s] = true
			taskID, _, msg, err := b.Task(id, generation)
			if err != nil {
				return nil, err
			}
			before, behind, found := bytes.Cut(msg, []byte(taskID))
			if !found {
				return nil, fmt.Errorf("the message of the task of job %s does not have the task's id", id)
			}
			forms = append(forms, len(taskID), before, behind)
		}
	}
	forms[0] = len(known)
	return forms, nil
}

// traits returns the rarely used properties of a job, in the form that accept.lua reads.
func (b *Books) traits(j *job.Job, batch string) string {
	if j.Cost <= 1 && j.At.IsZero() && j.Expires.IsZero() && j.Batch == batch && j.Route == "" && j.Priority == "" && j.Lane == "" && !b.cfg.OwnLanes {
		return ""
	}
	own := ""
	if b.cfg.OwnLanes {
		own = "="
	}
	return fmt.Sprintf("%d %d %d %s %s %s%d %s %s", max(j.Cost, 1), record.Micros(j.At), record.Micros(j.Expires), j.Route, j.Priority, own, len(j.Lane), j.Lane, j.Batch)
}
