package ledger

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// CallSpan is the length of each span in Calls.
const CallSpan = 5 * time.Second

// callSpans is how many finished spans the scripts keep: two minutes, without the current span.
const callSpans = 24

// Calls returns how many calls ended in each of the last 24 spans of 5 s before now (on Redis's clock), oldest
// first. It omits the current span, which is not over.
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

// HoursKept is for how many hours before the current one calls are counted by their answers.
const HoursKept = 24

// AnswersOf is the number of calls in one hour with a given answer and verdict.
type AnswersOf struct {
	Hour    time.Time // start of the hour
	Status  int       // 0 if there was no answer
	Verdict string
	Calls   int64
}

// Answers returns how many calls ended in each of the last HoursKept hours before now (on Redis's clock) and in
// the current one, by status and verdict, in no particular order.
func (b *Books) Answers(ctx context.Context, now time.Time) ([]AnswersOf, error) {
	counted, err := b.c.HGetAll(ctx, b.keys.Hours()).Result()
	if err != nil {
		return nil, err
	}
	var all []AnswersOf
	for field, text := range counted {
		var hour int64
		var of AnswersOf
		if n, _ := fmt.Sscan(field, &hour, &of.Status, &of.Verdict); n != 3 {
			continue
		}
		of.Hour = time.Unix(hour*3600, 0).UTC()
		of.Calls, _ = strconv.ParseInt(text, 10, 64)
		if !of.Hour.Before(now.Truncate(time.Hour).Add(-HoursKept * time.Hour)) {
			all = append(all, of)
		}
	}
	return all, nil
}
