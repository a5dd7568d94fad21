package console

import (
	"slices"
	"testing"
	"time"

	"spillway/internal/job"
)

// The line in the plot is the limit that is binding for the next calls, and not an average of several limits.
func TestTheLineIsThatOfTheLimitThatBinds(t *testing.T) {
	t.Parallel()
	const span = 5 * time.Second
	spans := func(calls ...int64) []int64 { return append(make([]int64, 24-len(calls)), calls...) }
	full := slices.Repeat([]int64{125}, 8) // 25/s for 40 s
	for name, tc := range map[string]struct {
		limits []string
		calls  []int64
		line   string
	}{
		"one limit":                         {[]string{"100/s"}, spans(), "100/s"},
		"idle":                              {[]string{"25/s", "1000/m"}, spans(), "25/s"},
		"in any order":                      {[]string{"1000/m", "25/s"}, spans(), "25/s"},
		"at full speed, with room":          {[]string{"25/s", "1000/m"}, spans(full[:6]...), "25/s"},
		"the minute is used up":             {[]string{"25/s", "1000/m"}, spans(append(slices.Clone(full), 0, 0)...), "1000/m"},
		"it was, and has room again":        {[]string{"25/s", "1000/m"}, spans(append(slices.Clone(full), make([]int64, 12)...)...), "25/s"},
		"a day, of which nobody knows here": {[]string{"100/s", "20000/d"}, spans(500, 500), "100/s"},
		"a day alone":                       {[]string{"20000/d"}, spans(), "20000/d"},
		"two within a span":                 {[]string{"1/10ms", "60/s", "900/30s"}, spans(), "60/s"},
		"and a third one is used up":        {[]string{"1/10ms", "60/s", "900/30s"}, spans(300, 300, 300), "900/30s"},
	} {
		var limits []job.Limit
		for _, text := range tc.limits {
			l, err := job.ParseLimit(text)
			if err != nil {
				t.Fatal(err)
			}
			limits = append(limits, l)
		}
		p := newPlot(tc.calls, span, limits)
		if p.Limit != tc.line || p.LimitAt <= 0 || p.LimitAt >= plotHigh {
			t.Errorf("%s: the line is %s at %.1f, want %s", name, p.Limit, p.LimitAt, tc.line)
		}
	}
}
