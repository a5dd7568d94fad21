package ledger

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Readmit admits parked jobs again, in order. Jobs that find no room stay parked (Full); jobs no longer parked
// as given are Gone. retry is when the first job without room would find some: zero if unknown, NoRetry if
// never.
func (b *Books) Readmit(ctx context.Context, jobs []job.Return) (answers []job.Admittance, retry time.Duration, err error) {
	forms, err := b.forms(len(jobs), func(i int) (string, int64) { return jobs[i].ID, jobs[i].Generation + 1 })
	if err != nil {
		return nil, 0, err
	}
	kinds, text, err := returns(jobs)
	if err != nil {
		return nil, 0, err
	}
	check, err := b.bucketArgs(ctx)
	if err != nil {
		return nil, 0, err
	}
	k := b.keys
	keys := []string{k.Admission(), k.Pending(), k.Counters(), k.Scheduled(), k.Costs(), k.Acts(), k.Nobodys()}
	args := make([]any, 0, 64)
	args = append(args, b.cfg.NowMicros.Now(), b.cfg.Gateway, redisdb.Wake, b.actPlace(), k.JobPrefix(), k.TaskPrefix())
	args = append(append(args, forms...), kinds...)
	args = b.shared(append(append(args, check...), text))
	run := b.readmit.Itself
	if _, err := strconv.Atoi(b.actPlace()); err == nil { // an operator's action
		run = b.readmit.Act
	}
	reply, err := run(ctx, b.c, keys, args...).Text()
	if err != nil {
		return nil, 0, err
	}
	return readmitted(reply, len(jobs))
}

// kind is what many jobs of a chunk have in common.
type kind struct {
	generation int64
	reason     job.Reason
	key        job.KeyChange
	class      job.ClassChange
	agreed     string
}

// returns encodes jobs in the form that readmit.lua reads: the number of kinds, each kind, and all jobs in one
// text.
func returns(jobs []job.Return) (kinds []any, text []byte, err error) {
	kinds, text = []any{0}, make([]byte, 0, 32*len(jobs))
	known := map[kind]int{}
	for _, r := range jobs {
		k := kind{r.Generation, r.Reason, r.Key, r.Class, ""}
		if !r.Agreed.IsZero() {
			k.agreed = strconv.FormatInt(record.Micros(r.Agreed), 10)
		}
		n, is := known[k]
		if !is {
			n = len(known) + 1
			known[k] = n
			kinds = append(kinds, strconv.FormatInt(r.Generation, 10), string(r.Reason), string(r.Key), string(r.Class), k.agreed)
		}
		if n > math.MaxUint16 || len(r.ID) > math.MaxUint16 {
			return nil, nil, fmt.Errorf("job %.64q can't be readmitted: its id is too long, or there are too many at once", r.ID)
		}
		text = binary.BigEndian.AppendUint16(text, uint16(n))         //nolint:gosec // looked at above
		text = binary.BigEndian.AppendUint16(text, uint16(len(r.ID))) //nolint:gosec // looked at above
		text = append(text, r.ID...)
	}
	kinds[0] = len(known)
	return kinds, text, nil
}

// readmittances are the answers of readmit.lua; digit n is the n-th, from 1.
var readmittances = []job.Admittance{job.Enqueued, job.Full, job.Gone}

// readmitted decodes the reply of readmit.lua for n jobs.
func readmitted(reply string, n int) ([]job.Admittance, time.Duration, error) {
	number, digits, _ := strings.Cut(reply, " ")
	us, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return nil, 0, redisdb.BadReply("readmit.lua", reply)
	}
	answers, err := coded("readmit.lua", digits, n, readmittances)
	return answers, retryOf(us), err
}

// Rejected is a job parked as rejected, ready to be admitted again.
type Rejected struct {
	Return job.Return
	Cost   int64
	Place  int64 // in the order of parking
}

// OldestRejected returns up to n jobs parked as rejected after a place, oldest first; 0 means all. Jobs with
// damaged records are set aside.
func (b *Books) OldestRejected(ctx context.Context, behind int64, n int) ([]Rejected, error) {
	reply, err := rejectedScript.Run(ctx, b.c, []string{b.keys.Parked(string(job.Rejected))}, behind, n, b.keys.JobPrefix()).StringSlice()
	if err != nil {
		return nil, err
	}
	jobs := make([]Rejected, 0, len(reply)/4)
	for i := 0; i+3 < len(reply); i += 4 {
		generation, err1 := strconv.ParseInt(reply[i+1], 10, 64)
		cost, err2 := strconv.ParseInt(reply[i+2], 10, 64)
		place, err3 := strconv.ParseFloat(reply[i+3], 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, redisdb.BadReply("rejected.lua", reply[i+1:i+4])
		}
		if generation < 0 {
			if err := b.setAside(ctx, reply[i], b.keys.Parked(string(job.Rejected))); err != nil {
				return nil, err
			}
			continue
		}
		jobs = append(jobs, Rejected{job.Return{ID: reply[i], Generation: generation, Reason: job.Rejected, Key: job.KeepKey}, cost, int64(place)})
	}
	return jobs, nil
}

// unfitField is a field of the counters: up to this place, all jobs parked as rejected cost more than admission
// can ever grant.
const unfitField = "unfit"

// LeaveBehind records that no job parked as rejected up to a place can be admitted with the current limits: new
// jobs don't wait for them.
func (b *Books) LeaveBehind(ctx context.Context, place int64) error {
	return b.c.HSet(ctx, b.keys.Counters(), unfitField, place).Err()
}
