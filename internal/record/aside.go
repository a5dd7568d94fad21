package record

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

// asideGeneration is the generation of a record that was made anew: no task of the job has it.
const asideGeneration = 1 << 40

// Of is whose job it is: its gateway's keys, and whether it has an outcome feed.
type Of struct {
	redisdb.Keys
	Feed bool
}

// SetAside deals with a job whose record is of another type, or has no generation: something else wrote to it, and nobody can say what the job was. What is there is kept
// under another name (redisdb.Keys.Aside), and the job is parked as unreadable, as one that may have been charged. note is what is known of it besides, or
// empty, now as the scripts take it, and from are further sets that the job stands in. A record that is in order, or not there, stays as it is; done says whether it was not.
func SetAside(ctx context.Context, c redis.Scripter, k Of, id, note string, now int64, from ...string) (done bool, err error) {
	why := fmt.Sprintf("its record was damaged in Redis: something else wrote into %s; what was there is now %s", k.Job(id), k.Aside(id))
	if note != "" {
		why += "; " + note
	}
	keys := []string{k.Job(id), k.Aside(id), k.Counters(), k.Parked("unreadable"), k.Open(), k.Scheduled(), k.Retrying(), k.Asking()}
	keys = append(keys, from...)
	return Aside.For(k.Feed).Run(ctx, c, keys, now, id, int64(asideGeneration), why).Bool()
}

// IfDamaged is what err, of a script on a job's record, comes to: if it comes of the record's being of another type, the job is set aside and
// setAside is true. Else it is err itself.
func IfDamaged(ctx context.Context, c redis.Scripter, k Of, id, note string, now int64, err error) (setAside bool, _ error) {
	if err == nil || !redisdb.DamagedKeyOf(err, k.Job(id)) {
		return false, err
	}
	done, failed := SetAside(ctx, c, k, id, note, now)
	if failed != nil {
		return false, errors.Join(err, failed)
	}
	if !done { // it is in order again
		return false, err
	}
	return true, nil
}
