package record

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
)

// Awaits is what a batch's totals say about approvals (approval.lua).
type Awaits struct {
	// Since is since when the batch awaits approval; zero if it does not.
	Since time.Time
	Why   string // why it awaits approval
	// Brought is who submitted its jobs since approvals were configured, sorted by name.
	Brought []Brought
	// Approved is when it was last approved; zero if never.
	Approved    time.Time
	By          string // who approved it
	ApprovalWhy string
}

// Brought is the number of jobs of a batch that one user submitted.
type Brought struct {
	Name string `json:"name"`
	// Person is the owner of the token, if the configuration names one.
	Person string `json:"person,omitempty"`
	// Via is how the user was identified, as in the audit trail.
	Via  string `json:"via"`
	Jobs int64  `json:"jobs"`
}

// broughtIn is the prefix of the fields with these numbers.
const broughtIn = "from/"

// Sender returns who submits jobs, in the form that accept.lua takes. person is the owner of the token; empty
// if unknown.
func Sender(via, name, person string) string {
	return strings.TrimSpace(via + "/" + name + " " + person)
}

func awaits(h map[string]string) (a Awaits) {
	a.Why, a.By, a.ApprovalWhy = h["over"], h["approver"], h["approval_why"]
	if us, err := strconv.ParseInt(h["awaits"], 10, 64); err == nil {
		a.Since = Moment(us)
	}
	if us, err := strconv.ParseInt(h["approved"], 10, 64); err == nil {
		a.Approved = Moment(us)
	}
	for field, value := range h {
		who, is := strings.CutPrefix(field, broughtIn)
		via, name, _ := strings.Cut(who, "/")
		person := ""
		if via == "token" { // a typed name may contain blanks
			name, person, _ = strings.Cut(name, " ")
		}
		if jobs, err := strconv.ParseInt(value, 10, 64); is && err == nil {
			a.Brought = append(a.Brought, Brought{name, person, via, jobs})
		}
	}
	slices.SortFunc(a.Brought, func(x, y Brought) int { return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Via, y.Via)) })
	return a
}

// ApprovedAs returns what approve.lua compares: since when the batch waits, its number of jobs, the number of
// submissions, and their money. A replaced payload counts as another submission, because its payee may differ.
func (b Batch) ApprovedAs() string {
	all := b.Sum(func(Place) bool { return true })
	var sums []string
	for _, m := range all.Amount.Sorted() {
		if m.Minor.Sign() != 0 {
			sums = append(sums, m.Currency+"="+m.Minor.String())
		}
	}
	if all.NoAmount != 0 {
		sums = append(sums, fmt.Sprintf("-=%d", all.NoAmount))
	}
	slices.Sort(sums)
	brought := int64(0)
	for _, who := range b.Awaits.Brought {
		brought += who.Jobs
	}
	return fmt.Sprintf("%d %d %d %s", Micros(b.Awaits.Since), all.Jobs, brought, strings.Join(sums, ","))
}

// Uncalled returns the jobs of the batch that await approval or will: jobs without a call in flight, or whose
// call was not their last.
func (b Batch) Uncalled() job.Totals {
	return b.Sum(Uncalled)
}

// Uncalled reports whether jobs in that place await approval or will.
func Uncalled(p Place) bool {
	switch p.State {
	case job.Queued, job.Scheduled, job.Retrying:
		return true
	case job.Parked:
		return p.Reason == job.AwaitsApproval || p.Reason == job.Rejected || p.Reason == job.Paused
	}
	return false
}
