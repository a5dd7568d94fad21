package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/dispatch"
)

// withLanes gives the first gateway lanes and a route. The second gateway has a route whose jobs share one line with all others.
func (r *rig) withLanes(url string) *rig {
	r.t.Helper()
	r.must(os.WriteFile(r.file, fmt.Appendf(nil, `redis: %s
gateways:
  %s:
    request: {url: "https://one.example/charge", idempotency_header: ""}
    leak: {limits: [100/s]}
    lanes: {key: lane, limits: [5/s, 100/m], weight: 2}
    routes: {refund: {request: {url: "https://one.example/refund"}}}
  %s:
    request: {url: "https://two.example/charge", idempotency_header: ""}
    leak: {limits: [100/s]}
    routes: {refund: {request: {url: "https://two.example/refund"}}}
`, url, r.one, r.two), 0o600))
	cfg, err := config.Load(r.file, config.Options{})
	r.must(err)
	r.cfg = cfg
	return r
}

func lanesRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	return r.withLanes(r.url)
}

// laneActs are acts on lanes and routes, and their output.
var laneActs = []struct{ act, says, json string }{
	{"lane set -g ONE acct_1 --limits 50/s,2000/m --why agreed", "one acct_1: 50/s 2000/m, weight 2 (set live; the file says 5/s 100/m, weight 2)\n", ""},
	{"lane set -g ONE acct_1 --weight 5", "one acct_1: 50/s 2000/m, weight 5 (set live; the file says 5/s 100/m, weight 2)\n", ""},
	{"lane set -g ONE acct_1 --max-in-flight 3", "one acct_1: 50/s 2000/m, weight 5, 3 in flight at most (set live; the file says 5/s 100/m, weight 2)\n", ""},
	{"lane set -g ONE acct_1 --max-in-flight 0", "one acct_1: 50/s 2000/m, weight 5 (set live; the file says 5/s 100/m, weight 2)\n", ""},
	{"lane pause -g ONE acct_1", "one acct_1: 50/s 2000/m, weight 5, paused (set live; the file says 5/s 100/m, weight 2)\n", ""},
	{"lane reset -g ONE acct_1 -o json", "", `{"gateway":"one","lane":"acct_1","limits":["5/s","100/m"],"weight":2,"paused":true,"max_in_flight":0,"set_live":false,"file":["5/s","100/m"],"file_weight":2,"file_max_in_flight":0}`},
	{"lane resume -g ONE acct_1", "one acct_1: 5/s 100/m, weight 2 (as in the file)\n", ""},
	{"lane pause -g ONE \"\" -o json", "", `{"gateway":"one","lane":"","limits":["5/s","100/m"],"weight":2,"paused":true,"max_in_flight":0,"set_live":false,"file":["5/s","100/m"],"file_weight":2,"file_max_in_flight":0}`},
	{"route pause -g ONE refund --why fraud", "one refund paused\n", ""},
	{"route resume -g ONE refund -o json", "", `{"gateway":"one","route":"refund","done":"resumed"}`},
}

const laneTrail = `TIME	one	WHO	lane set acct_1 50/s 2000/m	0			agreed	TIME
TIME	one	WHO	lane set acct_1 weight 5	0				TIME
TIME	one	WHO	lane set acct_1 in flight 3	0				TIME
TIME	one	WHO	lane set acct_1 in flight 0	0				TIME
TIME	one	WHO	lane pause acct_1	0				TIME
TIME	one	WHO	lane reset acct_1	0				TIME
TIME	one	WHO	lane resume acct_1	0				TIME
TIME	one	WHO	lane pause ""	0				TIME
TIME	one	WHO	route pause refund	0			fraud	TIME
TIME	one	WHO	route resume refund	0				TIME
`

func (r *rig) laneArgs(text string) (args []string) {
	for _, a := range strings.Fields(strings.NewReplacer("ONE", r.one, "TWO", r.two).Replace(text)) {
		args = append(args, strings.ReplaceAll(a, `""`, ""))
	}
	return args
}

// The answer and the trail have what was set for a lane, at Redis and through a dispatcher. An act that is refused is not in the trail.
func TestLanesAreSetLive(t *testing.T) {
	t.Parallel()
	here, afar := lanesRig(t), lanesRig(t).far()
	who, err := cli.WhoAmI()
	here.must(err)
	for name, at := range map[string]struct {
		r   *rig
		run func(...string) ran
	}{
		"here": {here, func(args ...string) ran { return here.command(args...) }},
		"afar": {afar.rig, func(args ...string) ran { return afar.afar(cli.Streams{}, args...) }},
	} {
		r := at.r
		for _, a := range laneActs {
			got := at.run(r.laneArgs(a.act)...)
			want := a.says
			if a.json != "" {
				want = a.json + "\n"
			}
			if got.code != 0 || got.out != want {
				t.Errorf("%s: %s: %+v, want %q", name, a.act, got, want)
			}
		}
		for act, want := range map[string]string{
			"lane set -g TWO m --weight 2":                                "the gateway two has no lanes",
			"lane pause -g TWO m":                                         "has no lanes",
			"lane set m --weight 2":                                       "no gateway is named",
			"lane set -g ONE m":                                           "nothing is named that the lane is to have",
			"lane set -g ONE m --weight 0":                                "a lane can't have a weight of 0",
			"lane set -g ONE m --weight 1001":                             "a lane can't have a weight of 1001",
			"lane set -g ONE m --limits 7/x":                              `"7/x" is not a limit`,
			"lane set -g ONE m --limits 5/s,6/s":                          "two limits of one window",
			"lane set -g ONE m --limits 5/100ms":                          "give one of at least 1s",
			"lane set -g ONE m --limits 1/s,1/m,1/h,1/d,1/2d":             "lanes have 5 limits: give at most 4",
			"lane set -g ONE " + strings.Repeat("x", 129) + " --weight 2": "has 129 bytes",
			"route pause -g ONE none":                                     `has no route "none"`,
			"route pause -g TWO refund":                                   "stand in one line, so none can be paused alone",
		} {
			if got := at.run(r.laneArgs(act)...); got.code != 2 || got.out != "" || !strings.Contains(got.err, want) {
				t.Errorf("%s: %s: %+v, want %q", name, act, got, want)
			}
		}
		if got := at.run(r.laneArgs("lane set -g none m --weight 2")...); got.code != 4 || !strings.Contains(got.err, `no gateway "none"`) {
			t.Errorf("%s: %+v", name, got)
		}
		got := r.run("history")
		got.out = strings.ReplaceAll(got.out, who, "WHO")
		r.expect(got, 0, laneTrail, "")
	}
	for body, want := range map[string]string{
		`{"by":"ops","lane":"m"}`:                  "neither limits nor a weight are named",
		`{"by":"ops","lane":"m","limits":["7/x"]}`: "is not a limit",
		`{"by":"ops","lane":"m","weight":-1}`:      "a lane can't have a weight of -1",
		`{"lane":"m","weight":2}`:                  "by",
	} {
		if a := afar.send("POST", "/v1/gateways/"+afar.one+"/lanes/set", body, nil); a.code != 400 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s, want %q", body, a.code, a.body, want)
		}
	}
}

// An act on a lane reaches Redis late. It does not undo what was set for the lane after it, and does not delay acts on other lanes.
func TestAStuckActUponALaneUndoesNothing(t *testing.T) {
	t.Parallel()
	r, line := lateRig(t)
	r.withLanes("redis://" + line.Addr() + "/0")
	stuck, later := r.laneArgs("lane pause -g ONE m --why STUCK"), r.laneArgs("lane set -g ONE m --weight 3")
	for _, args := range [][]string{stuck, later, r.laneArgs("lane resume -g ONE m"), r.laneArgs("lane set -g ONE n --weight 2")} { // Redis knows the scripts then
		r.command(args...)
	}
	told, release := r.sticks(line, "acted:lane:m", stuck...)
	if told.code != 5 || !strings.Contains(told.err, "it is not carried out any more") {
		t.Errorf("the person is told: %+v", told)
	}
	for _, args := range [][]string{later, r.laneArgs("lane set -g ONE n --weight 7")} {
		if got := r.command(args...); got.code != 0 {
			t.Fatalf("%v: %+v", args, got)
		}
	}
	release()
	for lane, weight := range map[string]int64{"m": 3, "n": 7} {
		if _, is, err := dispatch.LaneNow(r.ctx, r.c, r.gateway(r.one), lane); err != nil || is.Weight != weight || is.Paused {
			t.Errorf("%s: %+v %v", lane, is, err)
		}
	}
}
