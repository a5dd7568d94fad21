package bucket

import (
	"testing"

	"pgregory.net/rapid"
)

// The audit agrees with a brute-force count of every window.
func TestTheAuditSeesTheFullestWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.Int64Range(1, 1000).Draw(t, "window")
		a := newAudit([]window{{n: 10, length: length}, {n: audited + 1, length: 1}})
		var at, cost []int64
		now := int64(0)
		var most int64
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now += rapid.Int64Range(0, 300).Draw(t, "gap")
			at, cost = append(at, now), append(cost, rapid.Int64Range(1, 4).Draw(t, "cost"))
			told := 0
			a.add(now, cost[len(cost)-1], func(_ string, m int64) { most = m; told++ })
			if told != 1 {
				t.Fatalf("%d windows audited, want 1: the other is too large", told)
			}
		}
		if want := mostInWindow(at, cost, length); most != want {
			t.Fatalf("the audit says %d, there were %d", most, want)
		}
	})
}
