package incarnation

import (
	"fmt"
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

// Keys of a renamed gateway's jobs are no younger by what its clock was set back, and a clock that is behind keeps nobody from renaming it.
func TestARenamedGatewayKeepsHowFarItsClockWasSetBack(t *testing.T) {
	t.Parallel()
	c, ctx := testkit.Client(t), t.Context()
	now, err := c.Time(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	at := now.Add(time.Hour).UnixMicro()
	last := now.Add(-time.Minute).UnixMicro()
	for name, back := range map[string]struct{ old, is, want string }{
		"of the old name":  {"3602000000", "", "3602000000"},
		"of the new name":  {"", "5", "5"},
		"of both: the old": {"9", "8", "9"},
		"of both: the new": {"8", "9", "9"},
		"of none":          {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := Move{Old: testkit.Gateway(t), New: testkit.Gateway(t), Silence: 10 * time.Second}
			older, newer := redisdb.NewKeys(m.Old).Alive(), redisdb.NewKeys(m.New).Alive()
			seen := fmt.Sprintf("%d %d", last, at)
			c.HSet(ctx, older, "line", "a", "at", at, "v", "5", "seen", seen, "back", back.old)
			c.HSet(ctx, newer, "line", "b", "at", last, "v", "5", "back", back.is)
			if left, err := m.Leave(ctx, c); err != nil || left.What != "begun" {
				t.Fatalf("%+v, %v", left, err)
			}
			if err := m.Arrive(ctx, c); err != nil {
				t.Fatal(err)
			}
			if got := c.HGetAll(ctx, newer).Val(); got["back"] != back.want || got["seen"] != seen || got["at"] != fmt.Sprint(at) {
				t.Errorf("got %v, want back %q", got, back.want)
			}
		})
	}
}

// A restore that is confirmed before any pulse has seen that the clock was set back counts that, too.
func TestAConfirmedRestoreCountsAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	c, ctx := testkit.Client(t), t.Context()
	for name, tc := range map[string]struct {
		at, back, want int64
		seen           string
	}{
		"set back":            {1000 * second, 7, 7 + 902*second, ""},
		"and seen by a pulse": {1000 * second, 7, 7, fmt.Sprintf("%d %d", 99*second, 1000*second)},
		"not set back":        {99 * second, 7, 7, ""},
	} {
		k := redisdb.NewKeys(testkit.Gateway(t))
		c.HSet(ctx, k.Alive(), "line", "a", "at", tc.at, "v", "5", "df", 1, "back", tc.back, "seen", tc.seen)
		if n, err := confirmScript.Run(ctx, c, []string{k.Alive(), k.Pace(), k.Feed()}, 100*second, "5", "n").Int(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if got := c.HGet(ctx, k.Alive(), "back").Val(); got != fmt.Sprint(tc.want) {
			t.Errorf("%s: back is %s, want %d", name, got, tc.want)
		}
	}
}
