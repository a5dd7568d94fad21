package ledger

import (
	"context"
	"strconv"
	"time"
)

// CallSpan is how long each count of Calls is.
const CallSpan = 5 * time.Second

// callSpans is how many spans the scripts keep and have ended: two minutes, without the present span.
const callSpans = 24

// Calls returns how many calls ended in each of the last 24 spans of 5 s before now (on Redis's clock), oldest first. The span that
// now falls into is not among them, since it isn't over.
func (b *Books) Calls(ctx context.Context, now time.Time) ([]int64, error) {
	counted, err := b.c.HGetAll(ctx, b.keys.Rate()).Result()
	if err != nil {
		return nil, err
	}
	calls := make([]int64, callSpans)
	present := now.UnixMicro() / CallSpan.Microseconds()
	for i := range calls {
		span := strconv.FormatInt(present-callSpans+int64(i), 10)
		calls[i], _ = strconv.ParseInt(counted[span], 10, 64)
	}
	return calls, nil
}
