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
	there(up, eu, Memory{Line: "b", At: now.UnixMicro()}, "b a")
	there(eu, up, Memory{Line: "a", At: now.UnixMicro()}, "b a")
}

// A rename is repeated after a restore from before it. Meanwhile, a dispatcher that remembers the data under its new name has begun new data under that name.
func TestAnOlderStateThatIsRenamedAgainIsDoubted(t *testing.T) {
	t.Parallel()
	c, ctx := testkit.Client(t), t.Context()
	m := Move{Old: testkit.Gateway(t), New: testkit.Gateway(t), Silence: -time.Hour}
	c.HSet(ctx, redisdb.NewKeys(m.Old).Alive(), "line", "a", "at", moment-70*second, "v", "5")
	c.HSet(ctx, redisdb.NewKeys(m.New).Alive(), "line", "a x", "at", moment, "v", "5")
	if _, err := m.Leave(ctx, c); err != nil {
		t.Fatal(err)
	}
	if err := m.Arrive(ctx, c); err != nil {
		t.Fatal(err)
	}
	want := doubt{from: moment - 70*second, seen: moment, line: "a x"}
	if d, err := look(ctx, c, m.New, 0); err != nil || d.doubt != want || d.line != "a x" {
		t.Errorf("%+v, %v, want %+v", d, err, want)
	}
}

// What was seen of a gateway's data under another name counts, but not that the name went on with other data.
func TestWhatWasSeenUnderAnotherNameCounts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		own, other Memory
		d          data
		want       finding
	}{
		"renamed":                             {other: Memory{"a", moment - second}, d: data{line: "a", at: moment - second}, want: calm},
		"restored, and renamed":               {other: Memory{"a", moment - 5*second}, d: data{line: "a", at: moment - 70*second}, want: missing},
		"the new name was served before":      {Memory{"b", moment}, Memory{"a", moment - 5*second}, data{line: "b a", at: moment - 70*second}, missing},
		"from before a confirmed restore":     {other: Memory{"a b", moment - 5*second}, d: data{line: "a", at: moment - 70*second}, want: missing},
		"an operator has confirmed it":        {other: Memory{"a", moment - 5*second}, d: data{line: "a b", at: moment}, want: calm},
		"the old name went to another one":    {Memory{"a", moment - second}, Memory{"a x", moment}, data{line: "a", at: moment}, calm},
		"nothing to do with it":               {Memory{"a", moment - second}, Memory{"b", moment}, data{line: "a", at: moment}, calm},
		"seen since under the present name":   {Memory{"a", moment - second}, Memory{"a", moment - 90*second}, data{line: "a", at: moment}, calm},
		"doubted already, and for this cause": {other: Memory{"a", moment}, d: data{line: "a", at: moment - 70*second, doubt: doubt{moment - 70*second, moment, "a"}}, want: doubted},
	} {
		tc.d.now = moment
		past := NewPast(map[string]Memory{"here": tc.own, "elsewhere": {Line: "z"}})
		past.Put("elsewhere", tc.other)
		if found, _ := judgeAll(tc.own, past.others("here", tc.d.line), tc.d); found != tc.want {
			t.Errorf("%s: %s, want %s", name, found, tc.want)
		}
	}
}
