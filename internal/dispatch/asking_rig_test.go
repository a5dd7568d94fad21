package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/double"
	"spillway/internal/job"
)

// windowed is a bank that offers look-ups: of payments by our reference, by the bank's, or in the list of all payments.
const windowed = `
gateway: window/v1
about: "A bank with a window."
read: 2026-11-24
auth: {header: Authorization}
request: {encoding: json, amount: amount, unit: minor, reference: [reference]}
id: "pay_{n}"
payment: '{"id":"{id}","amount":{amount},"reference":"{reference}","status":"{status}"}'
words: {paid: paid, pending: pending, failed: failed}
normal: paid
moves: {pending: [{after: 5m, to: paid}]}
answers:
  paid: {status: 200}
  pending: {status: 202}
  failed: {status: 200}
  decline: {status: 402, body: '{"error":"declined"}'}
  error: {status: 500, body: '{"error":"internal"}'}
  unavailable: {status: 503, body: '{"error":"unavailable"}'}
  unauthorised: {status: 401, body: '{"error":"unauthorised"}'}
  invalid: {status: 400, body: '{"error":"invalid"}'}
  not-found: {status: 404, body: '{"error":"not found"}'}
  in-use: {status: 409, body: '{"error":{"code":"idempotency_key_in_use"}}'}
  mismatch: {status: 400, body: '{"error":{"type":"idempotency_error"}}'}
  "429": {status: 429, headers: {Retry-After: "{retry_after}"}, body: '{"error":"too many"}'}
endpoints:
  - {kind: search, path: payments, param: reference, body: '{"data":[{payments}]}', worst_lag: 1m}
  - {kind: list, path: ledger, size: limit, after: after, body: '{"data":[{payments}],"next":{next_cursor}}'}
  - {kind: get, path: "payments/{id}"}
fates: {2xx-later: {}, not-found-yet: {}}
`

// withKeys are idempotency keys that live for six minutes. Five of these are trusted.
const withKeys = `
keys: [{in: header, name: Idempotency-Key, min: 1, max: 255, bad: invalid, life: 6m}]
saved: {2xx: answer, 4xx: answer, 5xx: %s, compare: [path, body], mismatch: mismatch, mark: {Idempotent-Replayed: "true"}}
running: [in-use, wait]
`

// table returns the table of the bank's double.
func (a teller) table(t *testing.T) *double.Table {
	t.Helper()
	text := windowed + "keys: []\n"
	if a.keys {
		text = windowed + fmt.Sprintf(withKeys, map[bool]string{true: "answer", false: "nothing"}[a.saves])
	}
	table, err := double.Parse([]byte(text + fmt.Sprintf("limits: [{limit: %d/s, over: account, answer: \"429\"}]\n", a.perSecond)))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// teller is the configuration of a gateway with look-ups.
type teller struct {
	perSecond int
	keys      bool
	saves     bool // a 500 is saved under its key; otherwise a repeat is executed
	timeout   time.Duration
	how       string // search, list, or "": it can't be asked
	after     time.Duration
	more      string // lines of the gateway, indented by four
}

// waits is the schedule of look-ups in all stories.
const waits = "[5s, 20s, 40s, 1m, 1m, 2m, 5m, 10m, 30m, 1h, 3h, 6h]"

func (a teller) file() string {
	header, saved := `, idempotency_header: ""`, ""
	if a.keys {
		header = ""
	}
	if a.keys && !a.saves {
		saved = "saved: {5xx: runs_again}, "
	}
	text := fmt.Sprintf("    request: {url: \"http://gateway.invalid/pay\", headers: {Authorization: Bearer sk_1}, timeout: %s%s}\n    answers: {%srules: [{status: 202, then: accepted}]}\n", a.timeout, header, saved) +
		fmt.Sprintf("    leak: {limits: [%d/s]}\n    admission: {limits: [100000/s], burst: 100000}\n%s", a.perSecond, a.more)
	switch a.how {
	case "search":
		text += fmt.Sprintf("    lookup:\n      url: /payments?reference={id}\n      schedule: %s\n      matches: {data.0.amount: amount, data.0.reference: \"{id}\"}\n"+
			"      answers:\n        - {body: {data.0.status: paid}, then: done, reference: data.0.id}\n        - {body: {data.0.status: failed}, then: refused}\n"+
			"        - {body: {data.0.id: \"\"}, then: not_done, after: %s}\n", waits, a.after)
	case "list":
		text += fmt.Sprintf("    lookup:\n      url: /ledger?limit=20\n      schedule: %s\n      scan: {items: data, match: {reference: \"{id}\"}, next: next, parameter: after, pages: 50}\n"+
			"      matches: {amount: amount}\n      answers:\n        - {body: {status: paid}, then: done, reference: id}\n        - {body: {status: failed}, then: refused}\n"+
			"        - {absent: true, then: not_done, after: %s}\n", waits, a.after)
	}
	if a.how != "" {
		text += "      accepted: {url: \"/payments/{reference}\", matches: {amount: amount}, answers: [{body: {status: paid}, then: done}, {body: {status: failed}, then: refused}]}\n"
	}
	return text
}

// invoices returns n jobs, each with its own amount.
func (s *shop) invoices(from, n int) (jobs []job.Job) {
	for i := range n {
		id := fmt.Sprintf("inv-%05d", from+i)
		jobs = append(jobs, job.Job{ID: id, Gateway: s.g.Name, Payload: fmt.Appendf(nil, `{"amount":%d,"reference":%q}`, 100+from+i, id), Cost: 1, Batch: "run"})
	}
	return jobs
}

// bill admits n jobs, and returns their ids.
func (s *shop) bill(from, n int) (ids []string) {
	s.t.Helper()
	defer func() { s.bills = append(s.bills, bill{time.Since(s.began), ids}) }()
	for chunk := range slices.Chunk(s.invoices(from, n), 500) {
		s.take(chunk...)
		for _, j := range chunk {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

// bill is jobs that were admitted at a moment.
type bill struct {
	at  time.Duration
	ids []string
}

// bookings returns the payments of each job in the bank's ledger, without failed ones.
func (s *shop) bookings() map[string][]double.Entry {
	all := map[string][]double.Entry{}
	for _, e := range s.double.Ledger() {
		if e.State != "failed" {
			all[e.Job] = append(all[e.Job], e)
		}
	}
	return all
}

// untrue says how a job's end contradicts the bank's ledger, or that it was left to a person although the bank could tell; empty: nothing. A job may end as exhausted if the
// bank said after each of its calls that it made no payment. A job whose later calls repeated the saved failure of the first one may not.
func (s *shop) untrue(rec job.Record, booked []double.Entry) string {
	tried := rec.Attempts >= s.g.Retry.Attempts && (rec.KeyGeneration > 1 || !strings.Contains(rec.Error, "repeated answer"))
	what := ""
	switch {
	case len(booked) > 1:
		what = "is charged more than once"
	case rec.State == job.Done && len(booked) == 0:
		what = "is done and not charged"
	case rec.State == job.Done && rec.Reference != booked[0].ID:
		what = "has another payment's reference, " + rec.Reference + " for " + booked[0].ID
	case rec.State == job.Done:
	case rec.State == job.Parked && rec.Reason == job.Refused && len(booked) == 0:
	case rec.State == job.Parked && rec.Reason == job.Refused:
		what = "is refused and charged"
	case rec.State == job.Parked && rec.Reason == job.Exhausted && !rec.InDoubt() && len(booked) == 0 && tried:
	case rec.State == job.Parked:
		what = "is left to a person"
	case rec.State != job.Parked:
		what = "is not at an end"
	}
	if what == "" {
		return ""
	}
	return fmt.Sprintf("%s %s: %s %s, %d charges: %s", rec.Job.ID, what, rec.State, rec.Reason, len(booked), rec.Error)
}

// asked returns when look-ups came, and when jobs were called first.
func (s *shop) asked() (looks, first []time.Duration) {
	for _, c := range s.double.Calls() {
		if c.Look != "" {
			looks = append(looks, c.At.Sub(s.began))
		}
	}
	return looks, slices.Sorted(maps.Values(s.firstCalls()))
}

// firstCalls returns when each job was called first.
func (s *shop) firstCalls() map[string]time.Duration {
	first := map[string]time.Duration{}
	for _, c := range s.double.Calls() {
		if _, seen := first[c.Job]; !seen && c.Look == "" {
			first[c.Job] = c.At.Sub(s.began)
		}
	}
	return first
}

// within counts the moments in [from, to).
func within(all []time.Duration, from, to time.Duration) (n int) {
	for _, at := range all {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// shares looks for ten seconds in which look-ups take more than a tenth of the limit while jobs wait that were never called; empty: none.
func (s *shop) shares(perSecond int) (fault string) {
	const stretch, some = 10 * time.Second, 3 // some may begin together, and be late
	looks, _ := s.asked()
	called := s.firstCalls()
	for _, b := range s.bills {
		last := b.at
		for _, id := range b.ids {
			last = max(last, called[id])
		}
		for _, at := range looks {
			if n := within(looks, at, at+stretch); at >= b.at && at+stretch < last && n > perSecond+some {
				return fmt.Sprintf("%d look-ups in the %s from %s on, while jobs wait: a tenth of the limit are %d", n, stretch, at, perSecond)
			}
		}
	}
	return ""
}
