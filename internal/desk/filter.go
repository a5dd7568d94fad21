package desk

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/producer"
)

// ParseFilter parses which parked jobs are meant, from command flags or form fields: any number of reason and
// id, and batch, lane, route, since, until and match, which select nothing if empty. A time that is an unsigned
// duration means that long before now. name returns a field's name for errors.
func ParseFilter(q url.Values, now time.Time, name func(field string) string) (f deadletter.Filter, err error) {
	for _, one := range q["reason"] {
		if !slices.Contains(job.Reasons(), job.Reason(one)) {
			return f, usage("the reasons are "+strings.Join(job.Texts(job.Reasons()), ", "), "%s %q is not a reason for which a job is parked%s", name("reason"), one, meantReason(one))
		}
		f.Reasons = append(f.Reasons, job.Reason(one))
	}
	if f.IDs = q["id"]; slices.Contains(f.IDs, "") {
		return f, usage("name a job, or leave it out for all", "%s is empty", name("id"))
	}
	f.Batch, f.Lane, f.Route = q.Get("batch"), q.Get("lane"), q.Get("route")
	if f.Since, err = ParseAgo(q.Get("since"), now, name("since")); err != nil {
		return f, err
	}
	if f.Until, err = ParseAgo(q.Get("until"), now, name("until")); err != nil {
		return f, err
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Until.After(f.Since) {
		return f, usage("let "+name("until")+" be later than "+name("since"), "no job was parked at or after %s and before %s",
			job.Clock(f.Since), job.Clock(f.Until))
	}
	if text := q.Get("match"); text != "" {
		if f.Match, err = regexp.Compile(text); err != nil {
			return f, usage(`put \ before a character like ( or [ that stands for itself, and 'quotes' around it all`, "%s: %v", name("match"), err)
		}
	}
	return f, nil
}

// ParseAgo parses a time; an unsigned duration means that long before now. Empty is zero. name is the field's
// name for errors.
func ParseAgo(text string, now time.Time, name string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := producer.ParseTime(text, now); err == nil {
		return t, nil
	}
	t, err := producer.ParseTime("-"+text, now)
	if err != nil {
		return t, usage(`write 24h or 2d for so long ago, 2026-11-30, "2026-11-30 18:00" or 2026-11-30T18:00:00Z; without a zone it is in `+now.Format("MST"),
			"%s %q is not a time", name, text)
	}
	return t, nil
}

// ParseBy parses the time by which a batch should be finished: +2h, or a time, in UTC unless it says otherwise.
func ParseBy(text string, now time.Time) (time.Time, error) {
	t, err := producer.ParseTime(text, now.UTC())
	if err != nil {
		return t, usage(`write +2h, 2026-11-30, "2026-11-30 18:00" or 2026-11-30T18:00:00Z; without a zone it is UTC`, "%q is not a time", text)
	}
	return t, nil
}

// meantReason returns the reason that text probably means: one whose words for people were typed, or with a
// similar name.
func meantReason(text string) string {
	if strings.NewReplacer("_", " ", "-", " ").Replace(text) == job.ForRoom {
		text = string(job.Rejected)
	}
	return job.DidYouMean(text, "", job.Texts(job.Reasons()))
}

// FilterValues returns the filter in the form that ParseFilter reads, with absolute times. Limit is not
// included.
func FilterValues(f deadletter.Filter) url.Values {
	q := url.Values{}
	add := func(field, value string) {
		if value != "" {
			q.Add(field, value)
		}
	}
	for _, r := range f.Reasons {
		add("reason", string(r))
	}
	add("batch", f.Batch)
	add("lane", f.Lane)
	add("route", f.Route)
	add("since", Stamp(f.Since))
	add("until", Stamp(f.Until))
	for _, id := range f.IDs {
		add("id", id)
	}
	if f.Match != nil {
		add("match", f.Match.String())
	}
	if f.Limit > 0 {
		add("limit", strconv.Itoa(f.Limit))
	}
	return q
}

// Stamp formats a time for requests and filters; empty if it is zero.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// flag formats a command-line flag for a shell. Batches and patterns are always quoted.
func flag(name, value string) string {
	if (name == "batch" || name == "match") && !strings.ContainsAny(value, "$`!") { // a shell interprets these in double quotes
		return "--" + name + " " + strconv.Quote(value)
	}
	return "--" + name + " " + dispatch.ShellWord(value)
}

// FilterText returns the filter as command-line flags that select the same jobs later, without -g; empty if it
// selects all. It is written to the audit trail.
func FilterText(f deadletter.Filter) string {
	q := FilterValues(f)
	var parts []string
	for _, field := range []string{"reason", "batch", "lane", "route", "since", "until", "id", "match", "limit"} {
		for _, value := range q[field] {
			parts = append(parts, flag(field, value))
		}
	}
	return strings.Join(parts, " ")
}

// Selection is the parked jobs that a filter selects, gateway by gateway in configured order, and oldest first
// within a gateway. Filter.Limit applies to all gateways together.
type Selection struct {
	*Desk
	Filter deadletter.Filter

	after int64                // where the first gateway starts; 0 means at its oldest job
	upTo  map[string]time.Time // see UpTo
}

// Select returns the parked jobs that the filter selects, after a cursor (empty: from the first). It refuses a
// batch that no gateway knows, because a mistyped name would look like a batch without parked jobs.
func (d *Desk) Select(ctx context.Context, f deadletter.Filter, cursor string) (*Selection, error) {
	s := &Selection{Desk: d, Filter: f}
	if err := s.knowsBatch(ctx); err != nil {
		return nil, err
	}
	return s, s.startAt(cursor)
}

func (s *Selection) knowsBatch(ctx context.Context) error {
	name := s.Filter.Batch
	if name == "" {
		return nil
	}
	for _, g := range s.Gateways {
		_, ok, err := g.Books.Batch(ctx, name)
		if err != nil || ok {
			return err
		}
		// A parked foreign task is in no batch's totals, but may have a batch.
		parked, err := g.Store.Count(ctx, deadletter.Filter{Batch: name})
		if err != nil || len(parked) > 0 {
			return err
		}
	}
	return s.NoBatch(ctx, name)
}

// Cursor returns a parked job's position in the order of all jobs: GATEWAY/STAMP. Stamps are unique within a
// gateway, and grow with the time of parking. After a cursor, no job is repeated and none is left out, whatever
// comes and goes meanwhile.
func Cursor(r job.Record) string {
	return r.Job.Gateway + "/" + strconv.FormatInt(deadletter.Cursor(r), 10)
}

// startAt leaves out the gateways before the cursor's, and the jobs before the cursor in its own.
func (s *Selection) startAt(cursor string) error {
	if cursor == "" {
		return nil
	}
	gateway, digits, _ := strings.Cut(cursor, "/")
	stamp, err := strconv.ParseInt(digits, 10, 64)
	if gateway == "" || err != nil || stamp <= 0 {
		return usage(`take it from "cursor" of the last job that "dlq list -o json" printed: stripe/1763742851000001`, "--after %q is not a cursor", cursor)
	}
	i := slices.IndexFunc(s.Gateways, func(g *Gateway) bool { return g.Name == gateway })
	if i < 0 {
		return usage("the gateways asked for are "+s.Names(), "--after %s is of a gateway that is not among them", cursor)
	}
	rest := *s.Desk
	rest.Gateways = s.Gateways[i:]
	s.Desk, s.after = &rest, stamp
	return nil
}

// UpTo returns the selection without the jobs parked at a gateway at or after a time, and without gateways for
// which no time is given.
func (s *Selection) UpTo(moments map[string]time.Time) *Selection {
	some, d := *s, *s.Desk
	d.Gateways = slices.DeleteFunc(slices.Clone(d.Gateways), func(g *Gateway) bool { return moments[g.Name].IsZero() })
	some.Desk, some.upTo = &d, moments
	return &some
}

// from returns the filter for one of the gateways.
func (s *Selection) from(g *Gateway) deadletter.Filter {
	f := s.Filter
	if g == s.Gateways[0] {
		f.After = s.after
	}
	if until := s.upTo[g.Name]; !until.IsZero() && (f.Until.IsZero() || until.Before(f.Until)) {
		f.Until = until
	}
	return f
}

// Each visits the jobs parked by now. It returns the filter's ids that were not found, and an error with code
// not_found if none was.
func (s *Selection) Each(ctx context.Context, visit func(*Gateway, job.Record) error) (missing []string, err error) {
	met := map[string]bool{}
	n, err := s.each(ctx, met, visit)
	if err != nil || s.Filter.Limit > 0 && n == s.Filter.Limit {
		return nil, err
	}
	missing = unmet(s.Filter.IDs, met)
	if len(missing) > 0 && len(met) == 0 {
		return nil, s.NotParked(ctx, missing)
	}
	return missing, nil
}

// unmet returns the ids that were not met, each once.
func unmet(ids []string, met map[string]bool) (missing []string) {
	named := map[string]bool{}
	for _, id := range ids {
		if !met[id] && !named[id] {
			named[id], missing = true, append(missing, id)
		}
	}
	return missing
}

// each visits the jobs and counts them. It sets in met the filter's ids that were found.
func (s *Selection) each(ctx context.Context, met map[string]bool, visit func(*Gateway, job.Record) error) (all int, err error) {
	for _, g := range s.Gateways {
		f := s.from(g)
		f.Limit = s.Filter.Limit
		if f.Limit > 0 {
			f.Limit -= all
		}
		n, err := s.eachOf(ctx, g, f, met, visit)
		all += n
		if err != nil || s.Filter.Limit > 0 && all == s.Filter.Limit {
			return all, err
		}
	}
	return all, nil
}

func (s *Selection) eachOf(ctx context.Context, g *Gateway, f deadletter.Filter, met map[string]bool,
	visit func(*Gateway, job.Record) error) (n int, err error) {
	if f, err = g.Store.UpToNow(ctx, f); err != nil {
		return 0, err
	}
	for rec, err := range g.Store.List(ctx, f) {
		if err != nil {
			return n, err
		}
		if len(f.IDs) > 0 {
			met[rec.Job.ID] = true
		}
		n++
		if err := visit(g, rec); err != nil {
			return n, err
		}
	}
	return n, nil
}

// mostNamed is the most missing jobs that an error names.
const mostNamed = 5

// NotParked returns an error with code not_found that says for each id where its job is instead.
func (s *Selection) NotParked(ctx context.Context, ids []string) error {
	var parts []string
	for _, id := range ids[:min(len(ids), mostNamed)] {
		where, err := s.whereabouts(ctx, id)
		if err != nil {
			return err
		}
		parts = append(parts, where)
	}
	if more := len(ids) - mostNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("nor are %d more", more))
	}
	return &job.Error{Code: job.CodeNotFound, Message: strings.Join(parts, "; "),
		Hint: `see what is parked with "dispatcher dlq list", and any job with "dispatcher job ID"`}
}

// whereabouts says where a job is that was not found in the selection.
func (s *Selection) whereabouts(ctx context.Context, id string) (string, error) {
	all, err := s.Find(ctx, id)
	if job.CodeOf(err) == job.CodeNotFound {
		return fmt.Sprintf("no job %q", id), nil
	}
	if err != nil {
		return "", err
	}
	var known []string
	for _, f := range all {
		switch r := f.Record; r.State {
		case job.Parked:
			return fmt.Sprintf("job %q is %s at %s, and the other flags leave it out", id, r.Reason.As(), f.Name), nil
		case job.InFlight:
			known = append(known, fmt.Sprintf("%s at %s, until %s at the latest", r.State, f.Name, job.Moment(r.Deadline)))
		case job.Pending:
			known = append(known, fmt.Sprintf("%s at %s, which is asked what became of it", r.State, f.Name))
		default:
			known = append(known, fmt.Sprintf("%s at %s", r.State, f.Name))
		}
	}
	return fmt.Sprintf("job %q is not parked: it is %s", id, strings.Join(known, " and ")), nil
}
