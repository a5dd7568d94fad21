package redisdb_test

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// A cluster's gateways lie in several slots. A damaged key is reported elsewhere.
func TestTheFormatIsReadOnACluster(t *testing.T) {
	t.Parallel()
	c := testkit.Cluster(t)
	db, err := redisdb.Open(t.Context(), c.URL(), redisdb.Options{Wait: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	names := []string{"a", "b", "c", "d", "e"}
	if err := redisdb.CheckFormat(t.Context(), db.Client, names); err != nil {
		t.Error(err)
	}
	for _, n := range names[:4] {
		db.Client.HSet(t.Context(), redisdb.NewKeys(n).Alive(), "format", redisdb.Format)
	}
	db.Client.Set(t.Context(), redisdb.NewKeys("d").Counters(), "damaged", 0)
	if err := redisdb.CheckFormat(t.Context(), db.Client, names); err != nil {
		t.Error(err)
	}
	db.Client.HSet(t.Context(), redisdb.NewKeys("e").Alive(), "format", "2")
	if err := redisdb.CheckFormat(t.Context(), db.Client, names); err == nil || !strings.Contains(err.Error(), "gateway e is of format 2") {
		t.Errorf("a newer format of one of them: %v", err)
	}
}
