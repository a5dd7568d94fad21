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

// SetAside handles a job whose record has the wrong type or no generation: another program wrote to it, and
// what the job was is unknown. The old value is kept under another name (redisdb.Keys.Aside), and the job is
// parked as unreadable, as one that may have been charged. note is what else is known of it, or empty. now is
// the time in the form that scripts take. from are further sets that contain the job. A valid or missing record
// is not changed, and done is false.
func SetAside(ctx context.Context, c redis.Scripter, k Of, id, note string, now int64, from ...string) (done bool, err error) {
	why := fmt.Sprintf("its record was damaged in Redis: something else wrote into %s; what was there is now %s", k.Job(id), k.Aside(id))
	if note != "" {
		why += "; " + note
	}
	keys := []string{k.Job(id), k.Aside(id), k.Counters(), k.Parked("unreadable"), k.Open(), k.Scheduled(), k.Retrying(), k.Asking()}
	keys = append(keys, from...)
	return Aside.For(k.Feed).Run(ctx, c, keys, now, id, int64(asideGeneration), why).Bool()
}

// IfDamaged handles an error of a script on a job's record. If the record has the wrong type, the job is set
// aside and setAside is true. Otherwise IfDamaged returns err itself.
func IfDamaged(ctx context.Context, c redis.Scripter, k Of, id, note string, now int64, err error) (setAside bool, _ error) {
	if err == nil || !redisdb.DamagedKeyOf(err, k.Job(id)) {
		return false, err
	}
	done, failed := SetAside(ctx, c, k, id, note, now)
	if failed != nil {
		return false, errors.Join(err, failed)
	}
	if !done { // the record is valid again
		return false, err
	}
	return true, nil
}
