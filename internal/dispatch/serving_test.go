package dispatch

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// As long as a dispatcher serves, it reports who it is and how many calls it has made. One that was killed stays silent, and is forgotten after a while.
func TestADispatcherSaysThatItServes(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [100/s]}", "leak: {limits: [100/s]}")
	r.alone()
	db := r.db
	d, err := New(Params{DB: db, Gateways: r.cfg.Gateways[:1], Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Patience: patience,
		Version: "v1, of a test", Listen: func() string { return "127.0.0.1:9400" }, Chosen: true})
	if err != nil {
		t.Fatal(err)
	}
	known := func() []redisdb.Process {
		t.Helper()
		all, _, err := redisdb.WhoServes(t.Context(), db.Client)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	long := time.Now().Add(-redisdb.SilentKept - time.Minute).UnixMicro()
	for name, said := range map[string]string{"killed.1": "1 {}", "killed.2": "x {}", "killed.3": "5 {"} {
		db.Client.HSet(t.Context(), redisdb.Processes, name, said)
	}
	db.Client.HSet(t.Context(), redisdb.Processes, "killed.long.ago", long)
	if err := redisdb.Serve(t.Context(), db.Client, "killed.lately", redisdb.Serving{Version: "v0"}); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.put(0, 3)
	var me redisdb.Process
	testkit.Eventually(t, 30*time.Second, "the process to say that it has called", func() bool {
		all := known()
		i := slices.IndexFunc(all, func(p redisdb.Process) bool { return p.Name == processName() })
		if i < 0 {
			return false
		}
		me = all[i]
		return len(all) == 2 && me.Calls == 3 && me.Round > 0
	})
	if me.Version != "v1, of a test" || me.Listen != "127.0.0.1:9400" || me.Gateways != 1 || !slices.Equal(me.Chosen, []string{r.cfg.Gateways[0].Name}) ||
		time.Since(me.Started) > time.Minute || time.Since(me.LastCall) > time.Minute || time.Since(me.Seen) > time.Minute {
		t.Errorf("%+v", me)
	}
	if n := db.Client.HLen(t.Context(), redisdb.Processes).Val(); n != 2 {
		t.Errorf("%d fields are kept, want those of the two that are known", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	d.Stop(ctx)
	if all := known(); len(all) != 1 || all[0].Name != "killed.lately" {
		t.Errorf("after the stop: %+v", all)
	}
}
