package queue_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

func TestTheMonitorOnlyLooksAndShowsNoPayload(t *testing.T) {
	t.Parallel()
	c, name := testkit.Client(t), testkit.Gateway(t)
	msg, err := queue.NewEncoder(name).Encode("a-job~1")
	if err != nil {
		t.Fatal(err)
	}
	k := redisdb.NewKeys(name)
	c.SAdd(t.Context(), "asynq:queues", name)
	c.HSet(t.Context(), k.Task("a-job~1"), "msg", msg, "state", "pending")
	c.LPush(t.Context(), k.Pending(), "a-job~1")
	monitor, policy := queue.Monitor(c, "/queues/")
	ask := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		monitor.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w
	}
	if w := ask("GET", "/queues/"); w.Code != 200 || !strings.Contains(w.Body.String(), "Asynq") {
		t.Errorf("its page: %d", w.Code)
	}
	tasks := "/queues/api/queues/" + name + "/pending_tasks"
	if w := ask("GET", tasks); w.Code != 200 || !strings.Contains(w.Body.String(), `"payload":"not shown here"`) {
		t.Errorf("its tasks: %d %s", w.Code, w.Body)
	}
	for path, method := range map[string]string{tasks + ":delete_all": "DELETE", tasks + ":archive_all": "POST", "/queues/api/queues/" + name + ":pause": "POST"} {
		if w := ask(method, path); w.Code < 400 {
			t.Errorf("%s %s: %d, want a refusal", method, path, w.Code)
		}
	}
	if n := c.LLen(t.Context(), k.Pending()).Val(); n != 1 {
		t.Errorf("%d tasks wait, want 1", n)
	}
	if strings.Count(policy, "'sha256-") < 2 || strings.Contains(strings.Split(policy, "style-src")[0], "unsafe") {
		t.Errorf("policy %q", policy)
	}
}
