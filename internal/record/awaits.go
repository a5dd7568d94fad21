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

// Awaits is what the books of a batch say of approvals (approval.lua).
type Awaits struct {
	// Since is since when the batch waits for one; zero if it does not.
	Since time.Time
	Why   string // it waits
	// Brought is who brought its jobs in since approvals were configured, in the order of their names.
	Brought []Brought
	// Approved is when it was approved last; zero if it never was.
	Approved    time.Time
	By          string // approved it
	ApprovalWhy string
}

// Brought is how many jobs of a batch somebody brought in.
type Brought struct {
	Name string `json:"name"`
	// Person is whose token it was, where its configuration said so.
	Person string `json:"person,omitempty"`
	// Via is how it is known that it was he, as in the trail.
	Via  string `json:"via"`
	Jobs int64  `json:"jobs"`
}

// broughtIn begins the fields that say it.
const broughtIn = "from/"

// Sender is who brings jobs in, as accept.lua takes it. person is whose token it is; empty where nobody has said so.
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
		if via == "token" { // a name that was typed may have blanks of its own
			name, person, _ = strings.Cut(name, " ")
		}
		if jobs, err := strconv.ParseInt(value, 10, 64); is && err == nil {
			a.Brought = append(a.Brought, Brought{name, person, via, jobs})
		}
	}
	slices.SortFunc(a.Brought, func(x, y Brought) int { return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Via, y.Via)) })
	return a
}

// ApprovedAs is what approve.lua compares: since when the batch waits, how many jobs it has, how many were brought in (each payload that replaces another counts once more: its payee may be
// another one), and their money.
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

// Uncalled is the jobs of the batch that wait for an approval, or are about to: no call of theirs is under way, or was the last.
func (b Batch) Uncalled() job.Totals {
	return b.Sum(Uncalled)
}

// Uncalled says that jobs of that place wait, or are about to.
func Uncalled(p Place) bool {
	switch p.State {
	case job.Queued, job.Scheduled, job.Retrying:
		return true
	case job.Parked:
		return p.Reason == job.AwaitsApproval || p.Reason == job.Rejected || p.Reason == job.Paused
	}
	return false
}
