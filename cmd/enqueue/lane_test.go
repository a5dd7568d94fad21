package main

import (
	"testing"
)

const lanesOfG = `lanes: {key: payload.m, strip: true, header: {Merchant: "{lane}"}}`

// The lane of a job is a field of its payload. If each call needs a lane, a job without one is an invalid line.
func TestLanesOfAFile(t *testing.T) {
	b := setup(t, place{more: lanesOfG})
	b.write("a.ndjson", `{"id":"a","payload":{"m":"acct_1"}}
{"id":"b","payload":{"n":1}}
{"id":"c","payload":{"m":"acct_2"},"lane":"acct_1"}
{"id":"d","lane":"x","gateway":"`+b.g2+`"}
`)
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "-q"), result{3, counts(4, 1, 0, 0, 3, 0),
		`line 2: no lane: each call of gateway G has its lane in a header, and the payload's field m is missing, null or empty` + "\n" +
			`line 3: lane "acct_1": the lanes of gateway G are what the payload has as m, which is not that: leave the lane out` + "\n" +
			`line 4: lane "x": gateway ` + b.g2 + " has no lanes: leave the lane out, or write lanes in the configuration\n" +
			"enqueue: 3 of 4 lines could not be used\nhint: mend them and enqueue them again; --rejects FILE collects them\n"})
	if r := b.record(b.g, "a"); r.Job.Lane != "acct_1" {
		t.Errorf("a has the lane %q", r.Job.Lane)
	}
}

// If jobs name their lanes, --lane sets the lane of the lines that have none. The same id with another lane is a conflict.
func TestLanesThatJobsName(t *testing.T) {
	b := setup(t, place{more: "lanes: {key: lane}"})
	b.write("a.ndjson", `{"id":"a"}`+"\n"+`{"id":"b","lane":"two"}`)
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "--lane", "one", "-o", "json", "-q"), result{0, counts(2, 2, 0, 0, 0, 0), ""})
	for id, lane := range map[string]string{"a": "one", "b": "two"} {
		if r := b.record(b.g, id); r.Job.Lane != lane {
			t.Errorf("%s has the lane %q, want %q", id, r.Job.Lane, lane)
		}
	}
	b.write("b.ndjson", `{"id":"a"}`)
	b.want(b.run("-g", b.g, "-f", "b.ndjson", "-o", "json", "-q"), result{3, counts(1, 0, 0, 0, 1, 0),
		"line 1: this id is known with another route or lane of the gateway: the first one stands; give this job an id of its own\n" +
			"enqueue: 1 of 1 lines could not be used\nhint: mend them and enqueue them again; --rejects FILE collects them\n"})
}
