package console

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// crowd gives the console n gateways that no dispatcher has ever served.
func (r *rig) crowd(n int) {
	all := make([]config.Gateway, n)
	for i := range all {
		all[i] = r.g
		all[i].Name = fmt.Sprintf("%s-%04d", r.g.Name, i)
	}
	r.console.Use(all)
}

var rowName = regexp.MustCompile(`class="name"><a href="/gateways/[^"]*-(\d+)"`)

// names returns the numbers of the gateways on a page of the list.
func names(page string) (all []string) {
	_, rows, _ := strings.Cut(page, `id="gateways"`)
	for _, m := range rowName.FindAllStringSubmatch(rows, -1) {
		all = append(all, m[1])
	}
	return all
}

// A phone shows the first rows of a long table, and a checkbox shows the others. Empty cells have a class, so that cards leave them out.
func TestALongTableBeginsWithSomeRowsOnAPhone(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.crowd(rowsOnPhones + 3)
	_, page := r.get("/")
	wants(t, page, `class="folds"`, `<input type="checkbox"> Show the other 3 of this page`, `data-label="Queued" class="n none">0<`, `class="rate still"`)
	_, style := r.get("/assets/style.css")
	wants(t, style, fmt.Sprintf(".folds:not(:has(.unfold :checked)) tbody tr:nth-child(n+%d) { display: none; }", rowsOnPhones+1))
	r.crowd(rowsOnPhones)
	_, page = r.get("/")
	lacks(t, page, `type="checkbox"`)
}

// A list of many gateways has pages. A form without JavaScript filters it by name and state, and sorts it.
func TestManyGatewaysHavePagesAndAreFound(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.crowd(120)
	one := r.g.Name + "-0077"
	r.db.Client.HSet(t.Context(), redisdb.NewKeys(one).Hold(), "paused", 1, "why", "audit")
	for query, want := range map[string]string{
		"":                    "0000 to 0049 of 50",
		"?page=2":             "0050 to 0099 of 50",
		"?page=3":             "0100 to 0119 of 20",
		"?page=99":            "0100 to 0119 of 20",
		"?page=x":             "0000 to 0049 of 50",
		"?name=-011":          "0110 to 0119 of 10",
		"?state=paused":       "0077 to 0077 of 1",
		"?state=unserved":     "0000 to 0049 of 50",
		"?state=held":         "none",
		"?sort=name&page=2":   "0050 to 0099 of 50",
		"?name=NOBODY":        "none",
		"?sort=nonsense":      "0000 to 0049 of 50",
		"?name=-0077&state=x": "none",
	} {
		status, page := r.get("/" + query)
		got := "none"
		if all := names(page); len(all) > 0 {
			got = fmt.Sprintf("%s to %s of %d", all[0], all[len(all)-1], len(all))
		}
		if status != 200 || got != want {
			t.Errorf("%q: status %d, %s, want %s", query, status, got, want)
		}
	}
	_, page := r.get("/?state=unserved&sort=parked&page=2")
	wants(t, page, `<option value="unserved" selected>unserved (119)`, `<option value="parked" selected>`, "51 to 100 of 119, of 120 gateways",
		`href="/?page=1&amp;sort=parked&amp;state=unserved#gateways">Previous page`, `href="/?page=3&amp;sort=parked&amp;state=unserved#gateways">Next page`)
}

// The front page begins with what needs a person, or says that nothing does.
func TestTheFrontPageBeginsWithWhatNeedsAPerson(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	_, page := r.get("/")
	wants(t, page, "Nothing needs a person.")
	lacks(t, page, `id="g-name"`) // one gateway is found without
	r.put(3, `{"amount":500,"currency":"EUR"}`)
	r.parkOne("j0000", job.Refused, "HTTP 402: no")
	r.parkOne("j0001", job.UnknownOutcome, "time-out")
	r.trouble(job.Deny, "HTTP 401")
	_, page = r.get("/")
	lacks(t, page, "Nothing needs a person")
	wants(t, page, "since <time")
	at := -1
	for _, part := range []string{"nobody knows whether these payments were made", `1 job: <span class="sum">EUR 5.00`, `?reason=unknown_outcome#letters">Go there`, `href="/runbook#spillwayunknownoutcomes"`,
		"HTTP 401: check the credentials", `href="/runbook#spillwaydenied"`, "the gateway refused them", `<h2 id="gateways-title">`} {
		i := strings.Index(page, part)
		if i < at || i < 0 {
			t.Errorf("%q is missing, or not in its place", part)
		}
		at = i
	}
}

// The front page names a damaged key of one gateway, and still shows the other gateway.
func TestTheFrontPageWithADamagedKeyOfOneGateway(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.put(2, `{"amount":500,"currency":"EUR"}`)
	r.parkOne("j0000", job.Refused, "HTTP 402: no")
	other := r.g
	other.Name = testkit.Gateway(t)
	r.console.Use([]config.Gateway{r.g, other})
	r.db.Client.Set(t.Context(), redisdb.NewKeys(r.g.Name).Braked(), "rubbish", 0)
	if status, page := r.get("/"); status != 200 || !strings.Contains(page, other.Name) || !strings.Contains(page, "braked") || strings.Contains(page, "othing needs a person") {
		t.Errorf("%d\n%s", status, page)
	}
}
