package redisdb

import (
	"errors"
	"strings"
	"testing"

	"spillway/internal/testkit"
)

// One full primary of a cluster is reported for the gateways that it has. The other gateways are well. Asking writes nothing.
func TestWritableAsksWhereTheGatewaysAre(t *testing.T) {
	t.Parallel()
	c := testkit.Cluster(t)
	db, err := Open(t.Context(), c.URL(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	full := c.Owner(NewKeys("a").Nobodys())
	var there, elsewhere []string
	for _, g := range strings.Split("abcdefghijklmnop", "") {
		if c.Owner(NewKeys(g).Nobodys()) == full {
			there = append(there, g)
		} else {
			elsewhere = append(elsewhere, g)
		}
	}
	all := append(append([]string{}, elsewhere...), there...)
	if err := db.Writable(t.Context(), all); err != nil {
		t.Errorf("a cluster that is well: %v", err)
	}
	if err := full.Client().ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := db.Writable(t.Context(), all); !errors.Is(err, ErrAway) || !strings.Contains(err.Error(), "it is full") {
		t.Errorf("one of it is full: %v", err)
	}
	if err := db.Writable(t.Context(), elsewhere); err != nil {
		t.Errorf("it has none of these: %v", err)
	}
	for _, n := range c.Nodes {
		if size := n.Client().DBSize(t.Context()).Val(); size != 0 {
			t.Errorf("asking left %d keys", size)
		}
	}
}

func TestTheEmbeddedRedisIsWritable(t *testing.T) {
	t.Parallel()
	db, err := Open(t.Context(), Embedded, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Writable(t.Context(), []string{"a", "b"}); err != nil {
		t.Error(err)
	}
}
