package console

import (
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// trouble records a failure of a call.
func (r *rig) trouble(kind job.Trouble, answer string) {
	r.t.Helper()
	p, err := dispatch.Pacer(r.db.Client, r.g, bucket.NewMetrics(nil))
	if err != nil {
		r.t.Fatal(err)
	}
	defer p.Close(r.t.Context())
	f := job.Failure{Kind: kind, For: 10 * time.Minute, Job: "j", Written: true, Why: answer}
	if _, err := p.Failed(r.t.Context(), job.Circuit{Failures: 5, Ratio: 50, Calls: 20, Window: 10 * time.Second, Max: time.Hour}, f); err != nil {
		r.t.Fatal(err)
	}
}

// The pages distinguish a gateway that denies access, which needs a person, from one that asks to wait, which does not.
func TestAGatewayThatLetsNobodyInIsNotOneThatAsksToWait(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"HTTP 401", "HTTP 403"} {
		r := setup(t, setting{})
		r.put(1, `{}`)
		r.trouble(job.Deny, answer)
		for _, path := range []string{"/", "/gateways/" + r.g.Name} {
			_, page := r.get(path)
			wants(t, page, `class="status denied">denied<`, answer+": check the credentials", "tried again at", "nobody knows")
		}
	}
	r := setup(t, setting{})
	r.put(1, `{}`)
	r.trouble(job.Wait, "HTTP 429")
	_, page := r.get("/")
	wants(t, page, `class="status held">held<`, "HTTP 429", "until")
	lacks(t, page, "check the credentials")
}

// A gateway is stopped, but not by a pause. The pages do not offer Resume, which would not help.
func TestNothingIsOfferedThatDoesNotHelp(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.put(1, `{}`)
	if err := r.db.Client.HSet(t.Context(), r.keys().Pace(), "v", 1_000_000, "c", 1).Err(); err != nil {
		t.Fatal(err)
	}
	_, page := r.get("/gateways/" + r.g.Name)
	wants(t, page, `class="status stopped">stopped<`, "Redis has lost the version of the limits")
	lacks(t, page, "<button class=\"go\">Resume", `class="status paused"`)
}

// A gateway without a dispatcher is shown as unserved, also if no job waits.
func TestAGatewayThatNobodyServesIsNotIdle(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	_, page := r.get("/")
	wants(t, page, `class="status unserved">unserved<`, "no dispatcher has ever served the gateway")
}

// The page of a job has its idempotency key. It says that the payload is damaged, so that nobody replays the job.
func TestAJobSaysItsKeyAndItsDamage(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.g.Request.Key.Prefix, r.cfg.Gateways[0].Request.Key.Prefix = "one-", "one-"
	r.start("")
	r.park(1, `{"amount":500,"currency":"EUR"}`, job.Refused, "HTTP 402")
	_, page := r.get(jobLink(r.g.Name, "j0000"))
	wants(t, page, ">one-j0000<")
	lacks(t, page, "damaged")
	if err := r.db.Client.HSet(t.Context(), r.keys().Job("j0000"), "pn", 3000000000).Err(); err != nil {
		t.Fatal(err)
	}
	_, page = r.get(jobLink(r.g.Name, "j0000"))
	wants(t, page, "Its payload is damaged in Redis")
	lacks(t, page, "A replay goes out")
}

// A preview without a filter says so, although it has a time up to which it counts. The list of dead letters has their money.
func TestAPreviewSaysWhetherAFilterWasGiven(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.park(2, `{"amount":1200,"currency":"EUR"}`, job.Refused, "HTTP 402")
	_, page := r.get("/gateways/" + r.g.Name + "/clear?do=replay")
	wants(t, page, "No filter is given")
	_, page = r.get("/gateways/" + r.g.Name + "/clear?do=replay&reason=refused")
	wants(t, page, "Chosen by the filter")
	_, page = r.get("/gateways/" + r.g.Name)
	wants(t, page, "EUR 24.00")
}
