package config

import (
	"reflect"
	"testing"
	"time"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*Outcomes{
		"off":               nil,
		"{}":                {Keep: 7 * 24 * time.Hour, MaxBehind: 1_000_000, Then: OutcomesHold},
		"{readers: [a, b]}": {Readers: []string{"a", "b"}, Keep: 7 * 24 * time.Hour, MaxBehind: 1_000_000, Then: OutcomesHold},
		"{readers: [ledger], keep: 1h, max_behind: 0, then: drop}": {Readers: []string{"ledger"}, Keep: time.Hour, Then: OutcomesDrop},
	} {
		if got := parse(t, minimal+"    outcomes: "+text+"\n").Gateways[0].Outcomes; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
	c := parse(t, "defaults: {outcomes: {readers: [ledger]}}\n"+minimal+"    outcomes: {keep: 1d}\n")
	if o := c.Gateways[0].Outcomes; o == nil || len(o.Readers) != 1 || o.Keep != 24*time.Hour {
		t.Errorf("over the defaults: %+v", o)
	}
	if o := parse(t, "defaults: {outcomes: {readers: [ledger]}}\n"+minimal+"    outcomes: off\n").Gateways[0].Outcomes; o != nil {
		t.Errorf("off over the defaults: %+v", o)
	}
}
