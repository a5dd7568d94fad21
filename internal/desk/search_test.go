package desk

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// admit accepts jobs, given as pairs of an id and a payload.
func (g *Gateway) admit(t *testing.T, all ...string) {
	t.Helper()
	var jobs []job.Job
	for i := 0; i < len(all); i += 2 {
		jobs = append(jobs, job.Job{ID: all[i], Gateway: g.Name, Payload: []byte(all[i+1]), Cost: 1, Batch: "nov"})
	}
	cfg := &config.Config{Gateways: []config.Gateway{g.Gateway}}
	if _, err := dispatch.Door(g.redis, cfg, time.Second).Admit(t.Context(), g.Name, jobs, admission.Park); err != nil {
		t.Fatal(err)
	}
}

// found follows the pages of a search, and returns all ids.
func found(t *testing.T, d *Desk, q JobSearch) (ids string, pages int, unread int64) {
	t.Helper()
	var all []string
	for pages = 1; ; pages++ {
		hits, err := d.Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		unread += hits.Unread
		for _, h := range hits.Jobs {
			all = append(all, h.ID)
			if h.State != job.Queued || h.Batch != "nov" || h.AcceptedAt == nil {
				t.Errorf("%+v", h)
			}
		}
		if hits.Next == nil {
			slices.Sort(all)
			return strings.Join(slices.Compact(all), " "), pages, unread
		}
		q.After = *hits.Next
	}
}

func TestJobsAreFoundByWhatStandsInTheirPayloads(t *testing.T) {
	t.Parallel()
	g, other := one(t), one(t)
	g.admit(t, "inv-1", `{"customer":{"id":"cus_1","vip":true},"amount":12.50}`, "inv-2", `{"customer":{"id":"cus_2","vip":false},"amount":12.5}`,
		"ref-1", `{"customer":{"id":"cus_1"},"amount":"12.50","none":null,"list":["cus_1"]}`, "ref-2", `{}`)
	other.admit(t, "inv-9", `{"customer":{"id":"cus_1"}}`)
	d := &Desk{Gateways: []*Gateway{g}}
	for _, c := range []struct{ prefix, fields, want string }{
		{"", "payload.customer.id=cus_1", "inv-1 ref-1"},
		{"inv-", "payload.customer.id=cus_1", "inv-1"},
		{"inv-", "", "inv-1 inv-2"},
		{"", "payload.amount=12.50", "inv-1 ref-1"},
		{"", "payload.amount=12.5", "inv-2"},
		{"", "payload.customer.vip=true", "inv-1"},
		{"", "payload.customer.id=cus_1 payload.amount=12.50 payload.customer.vip=true", "inv-1"},
		{"", "payload.customer.id=CUS_1", ""},
		{"", "payload.none=<nil>", ""},
		{"", "payload.list=[cus_1]", ""},
		{"", "payload.customer=map[id:cus_1]", ""},
		{"", "payload.nothing=", ""},
	} {
		q := JobSearch{Prefix: c.prefix}
		for _, text := range strings.Fields(c.fields) {
			f, err := ParseField(text, "--field")
			if err != nil {
				t.Fatal(err)
			}
			q.Fields = append(q.Fields, f)
		}
		if got, _, unread := found(t, d, q); got != c.want || unread != 0 {
			t.Errorf("%q with %s: %q, want %q; %d unread", c.prefix, c.fields, got, c.want, unread)
		}
	}
	if got, _, _ := found(t, &Desk{Gateways: []*Gateway{g, other}}, JobSearch{Fields: []FieldIs{{"customer.id", "cus_1"}}}); got != "inv-1 inv-9 ref-1" {
		t.Errorf("at both gateways: %s", got)
	}
	if _, err := d.Search(t.Context(), JobSearch{}); job.CodeOf(err) != job.CodeUsage {
		t.Errorf("nothing is searched for: %v", err)
	}
	for _, wrong := range []string{"customer=x", "payload.customer", "payload.=x", "payload.a..b=x", "=x", ""} {
		if _, err := ParseField(wrong, "--field"); job.CodeOf(err) != job.CodeUsage {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// A search has pages of about the length that is asked for, and the pages have all jobs.
func TestASearchHasPages(t *testing.T) {
	t.Parallel()
	g := one(t)
	var jobs, want []string
	for i := range 3000 {
		jobs = append(jobs, fmt.Sprintf("inv-%04d", i), fmt.Sprintf(`{"customer":"cus_%d"}`, i%2))
		if i%2 == 1 {
			want = append(want, fmt.Sprintf("inv-%04d", i))
		}
	}
	g.admit(t, jobs...)
	got, pages, _ := found(t, &Desk{Gateways: []*Gateway{g}}, JobSearch{Fields: []FieldIs{{"customer", "cus_1"}}, Limit: 100})
	if got != strings.Join(want, " ") || pages < 2 {
		t.Errorf("%d jobs on %d pages, want %d", strings.Count(got, " ")+1, pages, len(want))
	}
}
