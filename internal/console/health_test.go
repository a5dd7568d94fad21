package console

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"spillway/internal/doctor"
	"spillway/internal/httpapi"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// The page of health shows the dispatchers and the findings of doctor, failures before warnings.
func TestThePageOfHealth(t *testing.T) {
	t.Parallel()
	r := setupAt(t, testkit.Server(t).URL(), setting{})
	_, page := r.get("/health")
	wants(t, page, "No dispatcher serves", "Nobody looks here")
	for name, version := range map[string]string{"host-a.17": "v1", "host-b.1": "v2"} {
		if err := redisdb.Serve(t.Context(), r.db.Client, name, redisdb.Serving{Version: version, Gateways: 3, Listen: "127.0.0.1:9400", Calls: 4711}); err != nil {
			t.Fatal(err)
		}
	}
	gone := fmt.Sprintf(`%d {"version":"v0","last_call":"2026-11-30T18:00:00Z","gateways":3}`, time.Now().Add(-time.Hour).UnixMicro())
	if err := r.db.Client.HSet(t.Context(), redisdb.Processes, "host-c.9", gone).Err(); err != nil {
		t.Fatal(err)
	}
	_, page = r.get("/health")
	wants(t, page, "host-a.17", `class="status serving"`, `class="status silent"`, "2 versions serve at once: v1; v2", "4\u202f711", "none so far", "2026-11-30 18:00:00 UTC", "all of its file")
	lacks(t, page, "No dispatcher serves")
	pages := New(Config{Redis: r.db.Client, Gateways: r.cfg.Gateways, Guard: httpapi.NewGuard(""), Log: slog.New(slog.DiscardHandler),
		Examiner: doctor.NewExaminer(func() doctor.Params { return doctor.Params{Config: r.cfg, Gateways: r.cfg.Gateways, DB: r.db} })})
	got := httptest.NewRecorder()
	pages.ServeHTTP(got, httptest.NewRequest("GET", "http://127.0.0.1/health", nil))
	page = got.Body.String()
	wants(t, page, "127.0.0.1:1 can&#39;t be reached", `<b class="level fail">fail</b> <a class="name" href="/gateways/`+r.g.Name, "no maxmemory", "Redis and the file", "As this process sees it")
	if fail, warn := strings.Index(page, "level fail"), strings.Index(page, "level warn"); fail < 0 || warn < fail {
		t.Errorf("what fails stands at %d, what is unwise at %d", fail, warn)
	}
}
