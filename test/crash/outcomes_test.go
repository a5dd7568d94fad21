package crash

import (
	"strings"

	"spillway/internal/dispatch"
	"spillway/internal/feed"
	"spillway/internal/job"
)

// outcomes checks that the feed agrees with the records. The last outcome of each job that is parked or over is its state, no outcome is told twice in a row,
// and after done no other outcome follows.
func (r *run) outcomes(when string, b books) {
	if !r.Fed {
		return
	}
	f, after := dispatch.Feed(r.c, r.gateway()), feed.Cursor{}
	told := map[string][]string{}
	for {
		page, err := f.Read(r.ctx, after, 100)
		r.must(err)
		if len(page) == 0 {
			break
		}
		for _, o := range page {
			state := o.State
			if o.Reason != nil {
				state += " " + string(*o.Reason)
			}
			if o.ID == "" {
				told["batch "+o.Batch] = append(told["batch "+o.Batch], state)
				continue
			}
			told[o.ID] = append(told[o.ID], state)
		}
		after, err = feed.ParseCursor(page[len(page)-1].Cursor)
		r.must(err)
	}
	for id, rec := range b.records {
		r.toldAs(when, id, rec, told[id])
	}
}

func (r *run) toldAs(when, id string, rec job.Record, told []string) {
	is, last := string(rec.State), ""
	if len(told) > 0 {
		last = told[len(told)-1]
	}
	switch {
	case rec.State == job.Parked && last != is+" "+string(rec.Reason), (rec.State == job.Done || rec.State == job.Discarded) && last != is,
		rec.State != job.Parked && rec.State != job.Done && rec.State != job.Discarded && last != "" && !strings.HasPrefix(last, "parked"):
		r.fault("%s: %s is %s %s, and the feed says %q", when, id, rec.State, rec.Reason, told)
	}
	repeated := 0
	for i, state := range told[:max(len(told)-1, 0)] {
		if state == "done" {
			r.fault("%s: %s is told as done, and then otherwise: %q", when, id, told)
		}
		if state == told[i+1] {
			repeated++
		}
	}
	if repeated > rec.Replays {
		r.fault("%s: %s was taken in again %d times, and the feed says %q", when, id, rec.Replays, told)
	}
}
