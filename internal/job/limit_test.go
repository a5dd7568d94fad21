package job

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseLimit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Limit{
		"100/s":    {100, time.Second},
		"5000/m":   {5000, time.Minute},
		"10/h":     {10, time.Hour},
		"10000/d":  {10000, 24 * time.Hour},
		"300/10s":  {300, 10 * time.Second},
		"1/10ms":   {1, 10 * time.Millisecond},
		"7/90m":    {7, 90 * time.Minute},
		"7/1500ms": {7, 1500 * time.Millisecond},
		"7/15us":   {7, 15 * time.Microsecond},
		"7/30d":    {7, 30 * 24 * time.Hour},
	} {
		got, err := ParseLimit(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: got %s (%+v), %v", text, got, got, err)
		}
	}
	for _, text := range []string{"", "/", "100", "100/", "/s", "100/x", "+5/s", "1.5/s", "100/s/s", "1 /s", " 1/s", "0/s", "1/0s", "1/-1s", "1/1ns", "1/1500ns", "70368744177665/s", "1/ms", "1/366d", "1/S"} {
		if l, err := ParseLimit(text); err == nil {
			t.Errorf("%q is read as %s", text, l)
		}
	}
	if got, _ := ParseLimit("60/60s"); got.String() != "60/m" {
		t.Errorf("got %s", got)
	}
}

// A rate that is not a whole number of calls must be written with a longer window.
func TestALimitOfAFractionSaysHowItIsWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1.5/s": "calls are whole: write 3/2s", "0.5/m": "calls are whole: write 1/2m", "2.50/10s": "calls are whole: write 5/20s", "2.0/s": "calls are whole: write 2/s",
		"0.0/s": limitHint, "1.5/x": limitHint, "1.5e3/s": limitHint, ".5/s": limitHint, "0.001/365d": limitHint, "1.5": limitHint, "1.23456789/s": limitHint,
	} {
		if _, rule := ReadLimit(text); rule != "is not a limit: "+want {
			t.Errorf("%s %s, want %s", text, rule, want)
		}
	}
}

func TestLimitReadsWhatItWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := Limit{
			N:      rapid.Int64Range(1, MaxCount).Draw(t, "n"),
			Window: time.Duration(rapid.Int64Range(1, MaxWindow.Microseconds()).Draw(t, "window")) * time.Microsecond,
		}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Limit
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Fatalf("%s: got %+v, want %+v, %v", text, got, want, err)
		}
	})
}

func TestReadDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "500ms": 500 * time.Millisecond, "24h": 24 * time.Hour, "30d": 720 * time.Hour,
		"1h30m": 90 * time.Minute, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "106751d": 106751 * 24 * time.Hour,
	} {
		if got, rule := ReadDuration(text); rule != "" || got != want {
			t.Errorf("%s: got %s, %v", text, got, rule)
		}
	}
	for _, text := range []string{"", "30", "d", "-1s", "1y", "1 h", "1h ", "106752d", "106751.999d", "99999999999999999999d", "106751d24h", "1e3s", "NaNd", "2562048h"} {
		if got, rule := ReadDuration(text); rule == "" {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}
