package producer

import (
	"testing"
	"time"

	"spillway/internal/job"
)

func TestDigest(t *testing.T) {
	t.Parallel()
	same := []string{
		`{"amount":1050,"currency":"eur","x":{"b":[1,2],"a":null}}`,
		` { "x" : { "a" : null , "b" : [ 1 , 2 ] } , "currency" : "\u0065ur" , "amount" : 1050 } `,
	}
	if Digest([]byte(same[0])) != Digest([]byte(same[1])) || len(Digest(nil)) != 16 {
		t.Error("the same payload written otherwise has another digest")
	}
	if Digest(nil) != Digest([]byte("{}")) {
		t.Error("an empty payload is {}")
	}
	seen := map[string]string{}
	for _, in := range []string{
		same[0], `{}`, `{"a":1}`, `{"a":1.0}`, `{"a":"1"}`, `{"a":10}`, `{"a":[1,2]}`, `{"a":[2,1]}`, `{"a":[1],"b":2}`, `{"a":{"b":1}}`,
		`{"a":{},"b":1}`, `{"a":12345678901234567890}`, `{"a":12345678901234567891}`, `{"a":"x\"y"}`, `{"a":"x\\\"y"}`, `nonsense`,
	} {
		d := Digest([]byte(in))
		if before, twice := seen[d]; twice {
			t.Errorf("%s and %s have the same digest", before, in)
		}
		seen[d] = in
	}
	// Pinned: the digests are kept in Redis, so they must not change from one release to the next.
	if got := Digest([]byte(`{"a":1}`)); got != "015abd7f5cc57a2d" {
		t.Errorf("the digest of {\"a\":1} is now %s", got)
	}
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("X", 2*3600)
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, zone)
	for in, want := range map[string]time.Time{
		"2026-11-30T18:00:00Z":      time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC),
		"2026-11-30T18:00:00.5Z":    time.Date(2026, 11, 30, 18, 0, 0, 5e8, time.UTC),
		"2026-11-30T18:00:00+01:00": time.Date(2026, 11, 30, 17, 0, 0, 0, time.UTC),
		"2026-11-30 18:00":          time.Date(2026, 11, 30, 18, 0, 0, 0, zone),
		"2026-11-30 18:00:01":       time.Date(2026, 11, 30, 18, 0, 1, 0, zone),
		"2026-11-30":                time.Date(2026, 11, 30, 0, 0, 0, 0, zone),
		"+90m":                      now.Add(90 * time.Minute),
		"+2d":                       now.Add(48 * time.Hour),
		"+1d12h":                    now.Add(36 * time.Hour),
		"-1h":                       now.Add(-time.Hour),
		"+0s":                       now,
	} {
		if got, err := ParseTime(in, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "+", "+d", "+1", "+-1h", "+1d-1h", "+99999d", "+999999h", "tomorrow", "2026-13-01", "18:00", "+1e3h", "1764500000"} {
		if got, err := ParseTime(in, now); err == nil || job.CodeOf(err) != job.CodeUsage {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}
