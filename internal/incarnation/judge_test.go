package incarnation

import (
	"strings"
	"testing"

	"spillway/internal/redisdb"
)

const second = 1_000_000

// moment is a time on Redis's clock in the tests.
const moment = 1_795_000_000 * second

func TestJudge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		m    Memory
		d    data
		want finding
		from int64 // of the doubt
	}{
		"a new gateway": {want: fresh},
		"seen the first time": {
			d: data{line: "a", at: moment - second}, want: calm},
		"seen before": {
			m: Memory{"a", moment - 2*second}, d: data{line: "a", at: moment - second}, want: calm},
		"a fail-over lost some seconds": {
			m: Memory{"a", moment - second}, d: data{line: "a", at: moment - 10*second}, want: calm},
		"an old snapshot": {
			m: Memory{"a", moment - second}, d: data{line: "a", at: moment - 12*second}, want: missing, from: moment - 12*second},
		"an old snapshot, after a silence": {
			m: Memory{"a", moment - 50*second}, d: data{line: "a", at: moment - 100*second}, want: missing, from: moment - 100*second},
		"nobody gave a sign of life for some time": {
			m: Memory{"a", moment - 60*second}, d: data{line: "a", at: moment - 60*second}, want: silent},
		"nor had this machine ever seen it": {
			d: data{line: "a", at: moment - 60*second}, want: silent},
		"an old snapshot that somebody without a memory took for the present": {
			m:    Memory{"a", moment - 50*second},
			d:    data{line: "a", at: moment - second, gaps: []span{{moment - 900*second, moment - 800*second}, {moment - 100*second, moment - 3*second}}},
			want: missing, from: moment - 100*second},
		"a silence before, one after, none while it was seen": {
			m: Memory{"a", moment - 50*second},
			d: data{line: "a", at: moment - second, gaps: []span{{moment - 900*second, moment - 60*second}, {moment - 49*second, moment - 3*second}}}, want: calm},
		"the last second before a silence was lost": {
			m: Memory{"a", moment - 50*second},
			d: data{line: "a", at: moment - second, gaps: []span{{moment - 51*second, moment - 3*second}}}, want: calm},
		"an operator has confirmed a restore": {
			m: Memory{"a", moment - 50*second}, d: data{line: "a b", at: moment - second}, want: calm},
		"two restores were confirmed meanwhile": {
			m: Memory{"a", moment - 50*second}, d: data{line: "a b c", at: moment - second}, want: calm},
		"a snapshot from before a confirmed restore": {
			m: Memory{"a b", moment - 5*second}, d: data{line: "a", at: moment - second, gaps: []span{{moment - 70*second, moment - 4*second}}},
			want: missing, from: moment - 70*second},
		"the same, and nobody moved it on": {
			m: Memory{"a b", moment - 5*second}, d: data{line: "a", at: moment - 70*second}, want: missing, from: moment - 70*second},
		"emptied": {
			m: Memory{"a", moment - 5*second}, want: fresh},
		"emptied, and begun anew by somebody else": {
			m: Memory{"a b", moment - 5*second}, d: data{line: "x", at: moment}, want: calm},
		"what was there before it was emptied comes back": {
			m: Memory{"a x", moment - 5*second}, d: data{line: "a", at: moment - 70*second}, want: missing, from: moment - 70*second},
		"it came back, and an operator has confirmed it": {
			m: Memory{"a x", moment - 5*second}, d: data{line: "a b", at: moment}, want: calm},
		"emptied, and begun anew some time ago": {
			m: Memory{"a", moment - 5*second}, d: data{line: "x", at: moment - 60*second}, want: silent},
		"somebody else doubts it": {
			d: data{line: "a", at: moment, doubt: doubt{from: moment - 70*second, line: "a"}}, want: doubted, from: moment - 70*second},
		"so do we, and know nothing worse": {
			m: Memory{"a", moment - 5*second}, d: data{line: "a", at: moment - 70*second, doubt: doubt{from: moment - 70*second, line: "a"}},
			want: doubted, from: moment - 70*second},
		"so do we, and know of a restore that nobody else has seen": {
			m: Memory{"a b", moment - 5*second}, d: data{line: "a", at: moment - 70*second, doubt: doubt{from: moment - 70*second, line: "a"}},
			want: missing, from: moment - 70*second},
		"so do we, and it reaches back further": {
			m: Memory{"a", moment - 5*second}, d: data{line: "a", at: moment - 90*second, doubt: doubt{from: moment - 70*second, line: "a"}},
			want: missing, from: moment - 90*second},
	} {
		tc.d.now = moment
		found, b := judge(tc.m, tc.d)
		if found != tc.want || b.from != tc.from {
			t.Errorf("%s: %s from %d, want %s from %d", name, found, b.from-moment, tc.want, tc.from-moment)
		}
		if found == missing && (b.seen != tc.m.At || b.line != tc.m.Line) {
			t.Errorf("%s: the doubt says %+v", name, b)
		}
	}
}

// The script records a silence from the same size on from which the judge considers data lost.
func TestTheScriptsSilenceIsTheTolerance(t *testing.T) {
	t.Parallel()
	if want := "ALIVE_BEAT, ALIVE_SILENCE = 1000000, 10000000"; tolerance != 10_000_000 || !strings.Contains(redisdb.AliveLua, want) {
		t.Errorf("alive.lua does not say %q, or the tolerance is not 10 s", want)
	}
}
