package redisdb

import (
	"strings"
	"testing"
)

func TestWhatACrashMayMakeRedisForget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		h          Health
		wait       int
		what, hint string
	}{
		"no AOF":                      {Health{Save: "60 1", Seen: true}, 0, "since its last snapshot", "appendonly"},
		"no AOF, a replica":           {Health{Replicas: 1}, 1, "since its last snapshot", "appendonly"},
		"everysec":                    {Health{AOF: true, Fsync: "everysec"}, 0, "the last second", "appendfsync always"},
		"no fsync":                    {Health{AOF: true, Fsync: "no"}, 0, "half minute", "appendfsync always"},
		"unseen":                      {Health{AOF: true}, 0, "could not be looked up", "appendfsync always"},
		"replicas, nobody waits":      {Health{AOF: true, Fsync: "always", Replicas: 1}, 0, "fail-over", "wait_replicas: 1"},
		"replicas, one is waited for": {Health{AOF: true, Fsync: "everysec", Replicas: 1}, 1, "", ""},
		"always":                      {Health{AOF: true, Fsync: "always"}, 0, "", ""},
	} {
		what, hint := c.h.Forgets(c.wait)
		if !strings.Contains(what, c.what) || !strings.Contains(hint, c.hint) || (what == "") != (c.what == "") {
			t.Errorf("%s: %q, %q", name, what, hint)
		}
	}
}
