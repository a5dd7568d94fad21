package main

import (
	"regexp"
	"strings"
	"testing"

	"spillway/internal/cli"
)

// person returns the streams of a person at a wide terminal.
func person() cli.Streams { return cli.Streams{In: strings.NewReader(""), OutTerminal: true} }

// ids returns the ids of one letter that begin the lines of a table.
func ids(table string) string {
	found := ""
	for line := range strings.Lines(table) {
		if id, _, _ := strings.Cut(line, " "); len(id) == 1 {
			found += id
		}
	}
	return found
}

// Jobs that wait for room are not dead letters. Text says that they wait, and counts them apart. Only programs see the name of their reason.
func TestWhatWaitsForRoomIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	r.served()
	for _, c := range []struct {
		args []string
		want string // after runs of spaces became one
	}{
		{[]string{"status", "-g", r.one}, `(?m)^one 0 0 0 0 0 2 0 unknown_outcome 1, refused 1 EUR 10\.51 `},
		{[]string{"batch", "b1"}, `(?m)^one waiting for room - 1 EUR 0\.99 -$\n^one parked refused 1 `},
		{[]string{"job", "b"}, `(?m)^state waiting for room$\n^why waiting for room since TIME: `},
		{[]string{"dlq", "stats", "-g", r.one}, `(?m)^one total 2 .* EUR 10\.51$\n^one waiting for room 2 `},
		{[]string{"dlq", "show", "b"}, `(?m)^reason waiting for room$`},
		{[]string{"audit", "-g", r.one}, `(?m)^one 4 0 0 0 0 0 2 0 unknown_outcome 1, refused 1 `},
	} {
		got := r.commandWith(person(), c.args...)
		text := squeeze(got.out)
		if got.code != 0 || !regexp.MustCompile(c.want).MatchString(text) || strings.Contains(text+got.err, "rejected") {
			t.Errorf("%v: exit code %d, %s\n%s\nwant %s", c.args, got.code, text, got.err, c.want)
		}
	}
}

// For people, the list begins with the jobs that need a person. Jobs that wait for room are only counted, unless they are asked for. Programs get
// all parked jobs, oldest first.
func TestDLQListBeginsWithWhatNeedsAPerson(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	const waiting = "and 2 wait for room (--reason rejected lists them)\n"
	list := func(args ...string) ran { return r.runWith(person(), append([]string{"list"}, args...)...) }
	for _, c := range []struct {
		flags, want, err string
	}{
		{"", "deaf", waiting},
		{"--reason rejected", "bc", ""},
		{"--reason rejected --reason refused", "abc", ""},
		{"--batch b1", "a", "and 1 waits for room (--reason rejected lists it)\n"},
		{"--match room", "bc", ""},
		{"--id f --id b --id a", "abf", ""},
		{"--since 2d --until 1d", "", "no parked job is meant\n"},
		{"-q", "deaf", ""},
	} {
		got := list(strings.Fields(c.flags)...)
		if ids(got.out) != c.want || got.err != c.err || got.code != 0 {
			t.Errorf("%s: %s and %q, exit code %d; want %s and %q\n%s", c.flags, ids(got.out), got.err, got.code, c.want, c.err, got.out)
		}
	}
	found, after := "", []string{}
	for range 6 {
		got := r.commandAsItIs(person(), append([]string{"dlq", "list", "--limit", "1"}, after...)...)
		cursor := regexp.MustCompile(`--after (\S+)`).FindStringSubmatch(got)
		if found += ids(got); cursor == nil {
			break
		}
		after = []string{"--after", cursor[1]}
	}
	if found != "deaf" {
		t.Errorf("page by page it is %s", found)
	}
	if got := r.run("list", "--after", "refused/"+r.two+"/1"); got.code != 0 || !strings.HasPrefix(got.out, "f\t") {
		t.Errorf("in a pipe it does not go on where a person has left off: %+v", got)
	}
	if got := r.run("list", "--after", "rejected/"+r.one+"/1"); got.code != 0 || got.out != "" {
		t.Errorf("behind the last reason it begins anew: %+v", got)
	}
	if got := r.run("export", "--after", "refused/"+r.two+"/1"); got.code != 2 || got.out != "" {
		t.Errorf("an export takes a cursor of another order: %+v", got)
	}
	if got := r.run("list"); r.parked() != "abcdef" || !strings.Contains(got.out, "\trejected\t") {
		t.Errorf("in a pipe: %s", got.out)
	}
}

// If something was mistyped, the error names what was most likely meant.
func TestWhatWasMeant(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for args, want := range map[string]string{
		"staus":                         "dispatcher: unknown command \"staus\"; did you mean status?\n",
		"enqueue -f x.ndjson":           "dispatcher: unknown command \"enqueue\"\nhint: enqueue is a program of its own beside dispatcher: enqueue -f FILE\n",
		"batch":                         "dispatcher: no batch is named\nhint: name one, or see them all: dispatcher batch list\n",
		"dlq replya --yes":              "dispatcher: unknown command \"replya\" for \"dispatcher dlq\"; did you mean replay?\n",
		"dlq list --bacth x":            "dispatcher: unknown flag: --bacth; did you mean --batch?\n",
		"dlq list --reason refsued":     "dispatcher: --reason \"refsued\" is not a reason for which a job is parked; did you mean refused?\n",
		"status -g " + r.one + "x":      "dispatcher: no gateway \"onex\" in FILE; did you mean one?\n",
		"status -g nothing-of-the-kind": "dispatcher: no gateway \"nothing-of-the-kind\" in FILE\n",
	} {
		if got := r.command(strings.Fields(args)...); got.code != 2 && got.code != 4 || !strings.HasPrefix(got.err, want) {
			t.Errorf("%s: exit code %d, %s", args, got.code, got.err)
		}
	}
}
