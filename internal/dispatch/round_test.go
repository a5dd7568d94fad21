package dispatch

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"spillway/internal/redisdb"
)

// A dispatcher that is alive counts as serving a gateway even if its rounds are long. One that is gone, or makes no progress, does not.
func TestALateDispatcherServes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sign, seen, round time.Duration
		served            bool
	}{
		"in time":                       {-10 * time.Second, 0, time.Second, true},
		"late, and as late as it is":    {-40 * time.Second, 0, 25 * time.Second, true},
		"later than it comes round":     {-40 * time.Second, 0, 15 * time.Second, false},
		"late, and silent by now":       {-40 * time.Second, -30 * time.Second, 25 * time.Second, false},
		"alive, and getting nowhere":    {-6 * time.Minute, 0, time.Hour, false},
		"of an older version, in time":  {-10 * time.Second, 0, 0, true},
		"of an older version, and late": {-40 * time.Second, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, "leak: {limits: [100/s]}")
			r.alone()
			r.sign(tc.sign)
			r.putBatch("b", 3)
			now, err := r.db.Client.Time(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			said, err := json.Marshal(redisdb.Serving{Gateways: 3000, Round: tc.round.Microseconds()})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.db.Client.HSet(t.Context(), redisdb.Processes, "host.1", fmt.Sprintf("%d %s", now.Add(tc.seen).UnixMicro(), said)).Err(); err != nil {
				t.Fatal(err)
			}
			v, err := Look(t.Context(), r.db.Client, r.cfg.Gateways[0])
			if err != nil || (v.Stopped == "") != tc.served || v.Since.IsZero() != tc.served {
				t.Errorf("%q since %v, %v", v.Stopped, v.Since, err)
			}
			if _, serves, err := LastServed(t.Context(), r.db.Client, r.cfg.Gateways[0].Name); err != nil || serves != tc.served {
				t.Errorf("serves: %v, %v", serves, err)
			}
		})
	}
}

// A round is reported as long as the last one took, or as the present one has taken if that is longer.
func TestARoundIsAsLongAsItTakes(t *testing.T) {
	t.Parallel()
	var r round
	at := time.UnixMicro(1_000_000)
	is := func(want time.Duration) {
		t.Helper()
		if got := time.Duration(r.micros(at)) * time.Microsecond; got != want {
			t.Errorf("the round is %v, and was to be %v", got, want)
		}
	}
	is(0)
	r.begin(at)
	at = at.Add(8 * time.Second)
	is(8 * time.Second)
	r.end(at)
	at = at.Add(3 * time.Second)
	is(8 * time.Second)
	at = at.Add(17 * time.Second)
	is(20 * time.Second)
	r.end(at)
	at = at.Add(time.Second)
	r.end(at)
	is(time.Second)
}
