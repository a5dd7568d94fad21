package desk

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// The calls of several gateways are summed up by the hour, or by the gateway.
func TestTheCallHistoryHasARowForEachHourOrGateway(t *testing.T) {
	t.Parallel()
	busy, idle := one(t), one(t)
	testkit.AmidHour(t, busy.redis)
	now, err := busy.redis.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	count := func(g *Gateway, ago int64, answer string, calls int64) {
		t.Helper()
		if err := g.redis.HIncrBy(t.Context(), redisdb.NewKeys(g.Name).Hours(), fmt.Sprint(now.Unix()/3600-ago, " ", answer), calls).Err(); err != nil {
			t.Fatal(err)
		}
	}
	count(busy, 0, "200 done", 1000)
	count(busy, 0, "402 refused", 30)
	count(busy, 2, "200 done", 7)
	count(idle, 2, "0 unknown", 5)
	count(busy, 24, "200 done", 1)
	count(busy, 25, "200 done", 99)
	count(busy, 0, "rubbish", 99)
	d := &Desk{Gateways: []*Gateway{idle, busy}}
	look := func(since time.Duration, by CallsBy) CallHistory {
		t.Helper()
		at := time.Time{}
		if since > 0 {
			at = now.Add(-since)
		}
		h, err := d.CallHistory(t.Context(), at, by)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := look(0, ByHour)
	if len(h.Rows) != 25 || h.All.Calls != 1043 || h.All.Done() != 1008 || h.All.Text() != "200 done 1,008, 402 refused 30, no answer, unknown 5" {
		t.Errorf("%d rows; %d calls, %d done: %s", len(h.Rows), h.All.Calls, h.All.Done(), h.All.Text())
	}
	if last := h.Rows[24]; last.Calls != 1030 || !last.Hour.Equal(now.UTC().Truncate(time.Hour)) || !h.Since.Equal(*h.Rows[0].Hour) || h.Rows[0].Calls != 1 || h.Rows[22].Text() != "200 done 7, no answer, unknown 5" {
		t.Errorf("the present hour %+v, the first %+v", last, h.Rows[0])
	}
	if h := look(2*time.Hour, ByGateway); len(h.Rows) != 2 || h.Rows[0].Gateway != busy.Name || h.Rows[0].Calls != 1037 || h.Rows[1].Calls != 5 || h.All.Calls != 1042 {
		t.Errorf("by gateway: %+v", h)
	}
	if h := look(time.Nanosecond, ByHour); len(h.Rows) != 1 || h.All.Calls != 1030 {
		t.Errorf("the present hour alone: %+v", h)
	}
	if h, err := (&Desk{}).CallHistory(t.Context(), time.Time{}, ByGateway); err != nil || len(h.Rows) != 0 {
		t.Errorf("no gateway: %+v, %v", h, err)
	}
}
