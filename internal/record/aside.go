package record

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

// asideGeneration is the generation of a record that was recreated. No task of the job has it.
const asideGeneration = 1 << 40

// Of identifies a job's gateway: its keys, and whether it has an outcome feed.
type Of struct {
	redisdb.Keys
	Feed bool
}

// Damage is what a caller has found to be wrong with a job's record.
type Damage struct {
	ID string
	// Err is the error of a script on the record. Nil means that a script has found no generation in it.
	Err error
	// Note is what else is known of the job, or empty.
	Note string
	// From are further sets that contain the job.
	From []string
}

// SetAside handles a job whose record has the wrong type or no generation: another program wrote to it, and
// what the job was is unknown. The old value is kept under another name (redisdb.Keys.Aside), and the job is
// parked as unreadable, as one that may have been charged. now is the time in the form that scripts take. If
// d.Err has another cause, or the record turns out to be valid or missing, nothing is changed: done is false, and
// the error is d.Err.
func SetAside(ctx context.Context, c redis.Scripter, k Of, d Damage, now int64) (done bool, err error) {
	if d.Err != nil && !redisdb.DamagedKeyOf(d.Err, k.Job(d.ID)) {
		return false, d.Err
	}
	why := fmt.Sprintf("its record was damaged in Redis: something else wrote into %s; what was there is now %s", k.Job(d.ID), k.Aside(d.ID))
	if d.Note != "" {
		why += "; " + d.Note
	}
	keys := []string{k.Job(d.ID), k.Aside(d.ID), k.Counters(), k.Parked("unreadable"), k.Open(), k.Scheduled(), k.Retrying(), k.Asking()}
	done, failed := Aside.For(k.Feed).Run(ctx, c, append(keys, d.From...), now, d.ID, int64(asideGeneration), why).Bool()
	if failed != nil && d.Err != nil {
		return false, errors.Join(d.Err, failed)
	}
	if !done && failed == nil {
		return false, d.Err
	}
	return done, failed
}
