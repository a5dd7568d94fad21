package console

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/bucket"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// The page of a gateway shows the jobs that wait by route, class and lane, with links to the parked jobs of each.
func TestTheGatewaysPageShowsLanes(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{more: `    routes: {refund: {request: {url: "http://127.0.0.1:1/refund"}, limits: [1/d]}}
    lanes: {key: lane, limits: [1/h]}
    priority: {classes: [urgent, normal], default: normal, floors: {normal: 20%}}
`})
	var jobs []job.Job
	for i := range 6 {
		jobs = append(jobs, job.Job{ID: fmt.Sprint("h", i), Gateway: r.g.Name, Payload: []byte(`{}`), Cost: 1, Lane: "<hog>"}, job.Job{ID: fmt.Sprint("s", i), Gateway: r.g.Name, Payload: []byte(`{}`), Cost: 1, Lane: fmt.Sprint("m", i), Route: "refund", Priority: "urgent"})
	}
	if _, err := dispatch.Door(r.db.Client, r.cfg, 0).Admit(t.Context(), r.g.Name, jobs, admission.Park); err != nil {
		t.Fatal(err)
	}
	p, err := dispatch.Pacer(r.db.Client, r.g, bucket.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(t.Context()) })
	p.AtMost(10)
	for range 2 {
		if _, err := p.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []job.Failure{{Scope: job.ScopeLane, Why: "HTTP 429 <for him>"}, {Scope: job.ScopeRoute, Why: "HTTP 503 of refunds"}} {
		f.Kind, f.For, f.Written, f.Flow = job.Wait, time.Hour, true, job.Flow{Lane: "<hog>", Route: "refund", Kept: true}
		if _, err := p.Failed(t.Context(), job.Circuit{}, f); err != nil {
			t.Fatal(err)
		}
	}
	page := "/gateways/" + r.g.Name
	_, text := r.get(page)
	wants(t, text, "held: HTTP 429 &lt;for him&gt;", "held until ", ": HTTP 503 of refunds</span>")
	wants(t, text, "urgent <b>5</b>", "normal <b>5</b>", "(at least 20 % of the calls)", "refund</a> <b>5</b>", ">1/d<", "without one <b>5</b>", "Lanes with jobs: <b>6</b>", "throttled:</span> <b>1</b>",
		"lane=%3Chog%3E", "&lt;hog&gt;</a>", "until <time", "1/h ", `data-label="In flight" class="n">1</td>`, `data-label="In flight" class="n">0</td>`)
	lacks(t, text, "<hog>")

	parked := jobs[3:5]
	for _, j := range parked {
		r.parkOne(j.ID, job.Refused, "HTTP 402: no")
	}
	_, text = r.get(page + "?lane=%3Chog%3E")
	wants(t, text, parked[1].ID+"</a>", `value="&lt;hog&gt;"`)
	lacks(t, text, ">"+parked[0].ID+"</a>")
	_, text = r.get(page + "?route=refund")
	wants(t, text, parked[0].ID+"</a>")
	lacks(t, text, ">"+parked[1].ID+"</a>")
	_, text = r.get(page + "/clear?do=replay&lane=%3Chog%3E")
	wants(t, text, "lane <b class=\"id\">&lt;hog&gt;</b>", "1 job", "<option>urgent</option>")
	plain := setup(t, setting{})
	_, text = plain.get("/gateways/" + plain.g.Name)
	lacks(t, text, "What waits in the queue", `name="lane"`)
}
