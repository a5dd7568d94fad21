package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// brakedRig gives the first gateway brakes of money. The second has none.
func brakedRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.must(os.WriteFile(r.file, fmt.Appendf(nil, `redis: %s
gateways:
  %s:
    request: {url: "https://one.example/charge", key_lifetime: 24h}
    amount: {field: amount, currency: currency}
    leak: {limits: [100/s]}
    brakes: [{limit: EUR 10/10m}, {limit: EUR 1000.50/7d}, {single: EUR 8}, {unknown_currency: refuse}]
  %s:
    request: {url: "https://two.example/charge", idempotency_header: ""}
    leak: {limits: [100/s]}
`, r.url, r.one, r.two), 0o600))
	cfg, err := config.Load(r.file, config.Options{})
	r.must(err)
	r.cfg = cfg
	return r
}

// opens has a worker open the next job of the first gateway. If a brake holds the job back, it returns to its queue.
func (r *rig) opens(want job.Opening) {
	r.t.Helper()
	books := dispatch.Books(r.c, r.gateway(r.one))
	id, generation, _ := job.ParseTaskID(testkit.Pop(r.t, r.c, redisdb.NewKeys(r.one).Lines()))
	a, opening, err := books.Open(r.ctx, id, generation, "w1", 10*time.Second)
	r.must(err)
	if opening != want {
		r.t.Fatalf("%s opened as %s, want %s", id, opening, want)
	}
	if opening == job.OpenBraked {
		r.must(books.Back(r.ctx, a, job.Ending{}, 0))
	}
}

const bounds = "one: a call takes EUR 8 at most\none: no call whose money can't be read, or whose currency no brake names\n"

// brakeTrail is the trail of the acts below.
const brakeTrail = `TIME	one	WHO	brake lift 2h	0			month's end	TIME
TIME	one	WHO	brake lift 90m	0			once more	TIME
TIME	one	WHO	brake lift 0s lost	0			their console counts 14	TIME
`

// seconds matches a time in JSON.
var seconds = regexp.MustCompile(`"[0-9-]+T[0-9:.]+Z"`)

// Brakes are shown and lifted in the same way at Redis and through a dispatcher. The trail says who lifted them. An act that is refused is not in the
// trail.
func TestBrakesAreShownAndLifted(t *testing.T) {
	t.Parallel()
	here, afar := brakedRig(t), brakedRig(t).far()
	who, err := cli.WhoAmI()
	here.must(err)
	for name, at := range map[string]struct {
		r   *rig
		run func(...string) ran
	}{
		"here": {here, func(args ...string) ran { return here.command(args...) }},
		"afar": {afar.rig, func(args ...string) ran { return afar.afar(cli.Streams{}, args...) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := at.r
			says := func(want string, args ...string) {
				t.Helper()
				got := at.run(args...)
				got.out = strings.ReplaceAll(got.out, who, "WHO")
				if got.code != 0 || got.out != want {
					t.Errorf("%v: %d %s, and it says\n%s\nwant\n%s", args, got.code, got.err, got.out, want)
				}
			}
			r.accept(r.gateway(r.one), job.Enqueued, charge("a", "700", ""), charge("b", "700", ""), charge("c", "700", ""))
			says("one: EUR 10/10m: EUR 0 called\none: EUR 1000.50/7d: EUR 0 called\n"+bounds+"two: no brakes\n", "brake", "show")
			r.opens(job.OpenGo)
			r.opens(job.OpenBraked)
			says("one: EUR 10/10m: EUR 7 called\none: EUR 1000.50/7d: EUR 7 called\n"+bounds+"one: a job waits since TIME for the brake EUR 10/10m, until TIME at the latest\n",
				"brake", "show", "-g", r.one)
			for what, want := range map[string]string{
				"-g ONE --for 2h":         "a brake lift needs a reason",
				"-g ONE --why x":          `brakes are lifted for a time, and "" is none`,
				"-g ONE --why x --for 2y": `brakes are lifted for a time, and "2y" is none`,
				"-g ONE --why x --for 8d": "brakes can't be lifted for 8d",
				"-g TWO --why x --for 2h": "the gateway two has no limit of money",
				"--why x --for 2h":        "no gateway is named",
			} {
				if got := at.run(append([]string{"brake", "lift"}, r.laneArgs(what)...)...); got.code != 2 || got.out != "" || !strings.Contains(got.err, want) {
					t.Errorf("brake lift %s: %+v, want %q", what, got, want)
				}
			}
			r.opens(job.OpenBraked)
			says("one: EUR 10/10m: EUR 7 called\none: EUR 1000.50/7d: EUR 7 called\n"+bounds+"one: limits of money are lifted until TIME, by WHO at TIME: month's end\n",
				"brake", "lift", "-g", r.one, "--for", "2h", "--why", "month's end")
			r.opens(job.OpenGo)
			got := at.run("brake", "lift", "-g", r.one, "--for", "1h30m", "--why", "once more", "-o", "json")
			if want := `{"gateway":"one","limits":[{"limit":"EUR 10/10m","currency":"EUR","most":1000,"called":1400},{"limit":"EUR 1000.50/7d","currency":"EUR","most":100050,"called":1400}],` +
				`"single":["EUR 8"],"refuse_unknown":true,"lifted_until":"TIME","lifted_at":"TIME","lifted_by":"WHO","lifted_why":"once more"}` + "\n"; seconds.ReplaceAllString(strings.ReplaceAll(got.out, who, "WHO"), `"TIME"`) != want {
				t.Errorf("%+v, want %s", got, want)
			}
			r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.one).Brakes(), "full", time.Now().UnixMicro()).Err()) // as if Redis had lost its data
			if got := at.run("brake", "show", "-g", r.one); strings.Count(got.out, "until TIME nobody knows what was called before Redis lost its data (brake lift --lost)") != 2 {
				t.Errorf("after a loss: %+v", got)
			}
			says("one: EUR 10/10m: EUR 14 called\none: EUR 1000.50/7d: EUR 14 called\n"+bounds, "brake", "lift", "-g", r.one, "--for", "0", "--lost", "--why", "their console counts 14")
			r.opens(job.OpenBraked)
			got = r.run("history")
			got.out = strings.ReplaceAll(got.out, who, "WHO")
			r.expect(got, 0, brakeTrail, "")
		})
	}
	for body, want := range map[string]string{
		`{"by":"ops","why":"x"}`:            "is none",
		`{"by":"ops","for":"2h"}`:           "needs a reason",
		`{"by":"ops","for":"8d","why":"x"}`: "can't be lifted for 8d",
		`{"for":"2h","why":"x"}`:            "does not say who makes it",
	} {
		if a := afar.send("POST", "/v1/gateways/"+afar.one+"/brakes/lift", body, nil); a.code != 400 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s, want %q", body, a.code, a.body, want)
		}
	}
}
