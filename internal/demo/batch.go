package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"spillway/internal/admission"
	"spillway/internal/clock"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/producer"
)

// spoiled are invalid lines, each for another reason.
var spoiled = []string{
	`{"id":"inv-90001","payload":{"amount":1000,"currency":"EUR"`,
	`{"payload":{"amount":1000,"currency":"EUR"}}`,
	`{"id":"inv 90003","payload":{"amount":1000,"currency":"EUR"}}`,
	`{"id":"inv-90004","cost":0,"payload":{"amount":1000,"currency":"EUR"}}`,
	`{"id":"inv-90005","gateway":"elsewhere","payload":{"amount":1000,"currency":"EUR"}}`,
	`{"id":"inv-00001","payload":{"amount":999999,"currency":"EUR"}}`, // the id of another payload: the first one stands
}

// duplicates is how many lines are in the file twice.
const duplicates = 6

// billingFile returns the sample batch: valid lines, some of them twice, then invalid lines, and at the end the jobs that expire.
func billingFile(p Params, expires time.Time) []byte {
	var b bytes.Buffer
	line := func(n int, more string) {
		fmt.Fprintf(&b, `{"id":"inv-%05d"%s,"payload":{"amount":%d,"currency":"EUR","description":"Invoice %d"}}`+"\n", n, more, 990+10*n, n)
	}
	for n := 1; n <= p.Jobs-p.Expiring; n++ {
		line(n, "")
	}
	for n := 1; n <= duplicates; n++ {
		line(n, "")
	}
	for _, bad := range spoiled {
		b.WriteString(bad + "\n")
	}
	for n := p.Jobs - p.Expiring + 1; n <= p.Jobs; n++ {
		line(n, fmt.Sprintf(`,"expires":%q`, expires.UTC().Format(time.RFC3339Nano)))
	}
	return b.Bytes()
}

// chunkJobs is how many jobs are admitted at once.
const chunkJobs = 200

// enqueue reads the billing file, admits its jobs, and counts the result of each line.
func (s *stage) enqueue(ctx context.Context, r *Reckoning) error {
	g := s.cfg.Gateways[0]
	file := bytes.NewReader(billingFile(s.p, s.begun.Add(s.p.ExpireAfter)))
	lines, err := producer.New(file, producer.Options{Gateway: g.Name, Batch: "demo", Gateways: func(name string) (int64, bool) {
		return dispatch.MaxCost(g), name == g.Name
	}, Amount: func(string) job.AmountRule { return dispatch.AmountRule(g) }})
	if err != nil {
		return err
	}
	door := dispatch.Door(s.db.Client, s.cfg, 0)
	var chunk []job.Job
	for {
		line, err := lines.Next()
		ended := errors.Is(err, io.EOF)
		switch {
		case ended:
		case err != nil:
			return err
		case line.Err != nil:
			r.Lines++
			r.Invalid++
		default:
			r.Lines++
			chunk = append(chunk, line.Job)
		}
		if len(chunk) == chunkJobs || ended {
			if err := admit(ctx, door, chunk, r); err != nil {
				return err
			}
			chunk = chunk[:0]
		}
		if ended {
			return nil
		}
	}
}

func admit(ctx context.Context, door *admission.Door, chunk []job.Job, r *Reckoning) error {
	answers, err := door.Admit(ctx, gatewayName, chunk, admission.Park)
	if err != nil {
		return err
	}
	for _, a := range answers {
		switch a.Outcome {
		case job.Enqueued:
			r.Enqueued++
			r.Jobs++
		case job.ParkedNow:
			r.NoRoom++
			r.Jobs++
		case job.Duplicate:
			r.Duplicate++
		default:
			r.Invalid++
		}
	}
	return nil
}

// replay replays the refused jobs through admission.
func (s *stage) replay(ctx context.Context, r *Reckoning) error {
	g := s.cfg.Gateways[0]
	now, err := s.books.Look(ctx)
	if err != nil {
		return err
	}
	r.Refused = int(now.Parked[job.Refused])
	again := deadletter.BulkRun{Store: deadletter.New(s.db.Client, g.Name), Clock: clock.Real{},
		Filter: deadletter.Filter{Reasons: []job.Reason{job.Refused}}}
	rules, err := dispatch.Rules(ctx, s.db.Client, g)
	if err != nil {
		return err
	}
	done, err := again.Replay(ctx, s.books, rules)
	r.Replayed = done.Taken
	return err
}
