package incarnation

import (
	"testing"
	"time"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// What machines have seen of the data under either name is no reason to doubt it when it has the new one, nor when it is renamed back.
func TestARenamedGatewaysAgeIsNotDoubted(t *testing.T) {
	t.Parallel()
	c, ctx := testkit.Client(t), t.Context()
	up, eu := testkit.Gateway(t), testkit.Gateway(t)
	now, err := c.Time(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	for gateway, line := range map[string]string{up: "a", eu: "b"} {
		c.HSet(ctx, redisdb.NewKeys(gateway).Alive(), "line", line, "at", now.UnixMicro(), "v", "5")
	}
	c.HSet(ctx, redisdb.NewKeys(up).Alive(), "marks", "1-2")
	there := func(from, to string, memory Memory, line string) {
		t.Helper()
		m := Move{Old: from, New: to, Silence: -time.Hour, Entry: "{}"}
		for _, want := range []string{"begun", "again"} {
			if left, err := m.Leave(ctx, c); err != nil || left.What != want || left.Entry == "" {
				t.Fatalf("%+v, %v, want %s", left, err, want)
			}
			if d, err := look(ctx, c, to, 0); err != nil || d.moving != m.What() || d.v == "5" {
				t.Fatalf("while it is renamed: %+v, %v", d, err)
			}
		}
		if err := m.Arrive(ctx, c); err != nil {
			t.Fatal(err)
		}
		d, err := look(ctx, c, to, 0)
		if err != nil || d.moving != "" || d.line != line || d.marks != "1-2" || d.v == "5" {
			t.Errorf("%+v, %v", d, err)
		}
		if found, _ := judge(memory, d); found != calm {
			t.Errorf("seen %+v, and it is %+v: %s", memory, d, found)
		}
		if n := c.Exists(ctx, redisdb.NewKeys(from).Alive()).Val(); n != 0 {
			t.Error("the old name has a sign of life")
		}
	}
	there(up, eu, Memory{Line: "b", At: now.UnixMicro()}, "a b")
	there(eu, up, Memory{Line: "a", At: now.UnixMicro()}, "a b")
}
