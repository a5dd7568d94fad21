package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// afar runs a command with --server. The file and the Redis in its flags do not exist, so the command can use neither.
func (f *far) afar(s cli.Streams, args ...string) ran {
	f.t.Helper()
	if s.In == nil {
		s.In = strings.NewReader("")
	}
	var out, err bytes.Buffer
	s.Out, s.Err = &out, &err
	token := filepath.Join(f.t.TempDir(), "token")
	f.must(os.WriteFile(token, []byte(apiToken+"\n"), 0o600))
	code := cli.Main(name, newCommand, append(args, "--server", f.url, "--token-file", token, "-c", "none.yaml", "--redis", "redis://127.0.0.1:1"), s)
	return ran{f.tidy(out.String()), f.tidy(err.String()), code}
}

// passing matches what may differ between two runs of a command: how long it took, and ages.
var passing = regexp.MustCompile(`"(seconds|eta_seconds|late_seconds|rate_1m)":[0-9.]+|"cursor":"\d+/|\d+(\.\d+)? ?(ms|s|m) ago|\bnow\b|\b(\d+m)?\d+(\.\d)?s\b|\b\d+\.\d/s`)

// blanks matches the space between columns, whose width depends on such texts.
var blanks = regexp.MustCompile(` {2,}`)

// same fails the test unless a command has the same output at Redis and with --server.
func (f *far) same(args ...string) {
	f.t.Helper()
	terminal := cli.Streams{OutTerminal: true, OutWidth: 300} // no column is cut, whose width would be that of ages
	for _, how := range []struct {
		cli.Streams
		more []string
	}{{cli.Streams{}, nil}, {cli.Streams{}, []string{"-o", "json"}}, {terminal, nil}} {
		all := append(slices.Clone(args), how.more...)
		here := how.Streams
		here.In = strings.NewReader("")
		f.alike(all, f.commandWith(here, all...), f.afar(how.Streams, all...))
	}
}

func (f *far) alike(args []string, here, afar ran) {
	f.t.Helper()
	for _, one := range []*ran{&here, &afar} {
		one.out, one.err = blanks.ReplaceAllString(passing.ReplaceAllString(one.out, ""), " "), passing.ReplaceAllString(one.err, "")
	}
	if here != afar {
		f.t.Errorf("%v\nhere (%d):\n%s%s\nthrough --server (%d):\n%s%s", args, here.code, here.out, here.err, afar.code, afar.out, afar.err)
	}
}

// fill adds jobs in all kinds of states.
func (f *far) fill() {
	f.t.Helper()
	f.stock()
	f.served()
	f.accept(f.manual(f.one), job.Enqueued, charge("q", "700", "b2"), charge("r", "3", "b2"))
	f.command("pause", "-g", f.two, "--why", "maintenance")
	f.command("batch", "pause", "b2", "--why", "wrong file", "--yes", "-q")
	f.accept(f.gateway(f.one), job.Enqueued, charge("s", "5", "b3"), charge("t", "6", "b3"))
}

// Each view is the same through a dispatcher as at Redis: output, JSON and exit code.
func TestEveryViewIsTheSameThroughAServer(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.fill()
	testkit.AmidHour(t, f.c) // the counts of calls are by the hour
	for _, args := range [][]string{
		{"status"}, {"status", "-g", f.two}, {"status", "-g", "none"},
		{"calls"}, {"calls", "--by", "gateway", "--since", "2h"}, {"calls", "--by", "x"}, {"answers"}, {"answers", "-g", f.one, "--batch", "b1"}, {"processes"},
		{"job", "q"}, {"job", "a", "--payload"}, {"job", "none"}, {"job", "f", "--payload"}, {"find", "a"}, {"find"}, {"find", "--field", "payload.amount=1050"},
		{"batch", "b1"}, {"batch", "b2"}, {"batch", "none"}, {"batch", "b2", "--by", "+2h"}, {"batch", "b3", "--by", "2020-01-01T00:00:00Z"}, {"batch", "list"}, {"batch", "list", "--limit", "1"},
		{"batch", "b1", "--export"}, {"batch", "none", "--export"}, {"batch", "b1", "--export", "--fields", "payload.amount"},
		{"export", "-g", f.one, "--state", "parked"}, {"export", "--state", "none"}, {"export", "--since", "1h", "--time", "finished"},
		{"dlq", "list"}, {"dlq", "list", "--limit", "2"}, {"dlq", "list", "--reason", "refused", "--payload"}, {"dlq", "list", "--id", "a", "--id", "q"}, {"dlq", "list", "--id", "none"},
		{"dlq", "list", "--batch", "none"}, {"dlq", "list", "--after", "x"}, {"dlq", "list", "--match", "402"}, {"dlq", "list", "--since", "1h", "--until", "2h"},
		{"dlq", "show", "a"}, {"dlq", "show", "d", "--payload"}, {"dlq", "show", "f", "--payload"}, {"dlq", "show", "q"}, {"dlq", "stats"}, {"dlq", "stats", "--batch", "b1"}, {"dlq", "stats", "--id", "a", "--id", "q"},
		{"dlq", "export"}, {"dlq", "export", "-g", f.one, "--id", "a", "--id", "none"}, {"dlq", "history"}, {"dlq", "history", "-g", f.two, "--limit", "1"},
		{"dlq", "replay"}, {"dlq", "replay", "--reason", "refused", "--canary", "1"}, {"dlq", "replay", "--id", "q"}, {"dlq", "discard", "--why", "x", "-g", f.two}, {"dlq", "resolve", "--ask"},
		{"dlq", "resolve", "--done", "--why", "x", "--id", "d", "--reference", "ch_1"}, {"dlq", "resolve", "--done", "--why", "x"},
		{"gateway", "list"}, {"gateway", "rename", "none", f.one, "--why", "x"}, {"gateway", "forget", f.one, "--why", "x"}, {"gateway", "rename", f.one, "none", "--why", "x"},
		{"limit", "show"}, {"limit", "show", "-g", "none"}, {"brake", "show"}, {"limit", "set", "-g", f.one, "7/x"}, {"limit", "set", "-g", "none", "7/s"},
		{"audit"}, {"audit", "-g", f.one, "-v"}, {"park", "s", "--why", "x"}, {"park", "a", "--why", "x"}, {"park", "none", "--why", "x"},
		{"batch", "pause", "b3", "--why", "x"}, {"batch", "cancel", "b2", "--why", "x", "--dry-run"}, {"batch", "resume", "none", "--why", "x"}, {"outcomes"}, {"pause", "-g", "none"},
	} {
		f.same(args...)
	}
}

// Each act does the same: two equal sets of jobs stay equal, one changed at Redis and the other through a dispatcher.
func TestEveryActIsTheSameThroughAServer(t *testing.T) {
	t.Parallel()
	here, afar := newFar(t), newFar(t)
	here.fill()
	afar.fill()
	for _, args := range [][]string{
		{"pause", "-g", "ONE", "--why", "bank holiday"}, {"pause", "-g", "TWO", "-g", "ONE"}, {"status"}, {"resume", "-g", "ONE", "-o", "json"}, {"resume", "-g", "TWO"},
		{"limit", "set", "-g", "ONE", "50/s", "2000/m", "--why", "agreed"}, {"limit", "reset", "-g", "ONE", "-o", "json"}, {"limit", "forgive", "-g", "ONE", "--why", "x"},
		{"dlq", "replay", "--reason", "refused", "--yes", "--why", "again"}, {"dlq", "discard", "--id", "r", "--why", "x", "--yes", "-o", "json"},
		{"dlq", "resolve", "--done", "--id", "d", "--why", "in the report", "--reference", "ch_1", "--yes"}, {"dlq", "resolve", "--not-done", "-g", "TWO", "--why", "x", "--yes", "-o", "json"},
		{"park", "s", "--why", "wrong customer", "--yes"}, {"park", "t", "--why", "x", "--yes", "-o", "json"}, {"batch", "resume", "b2", "--why", "right after all", "--yes"},
		{"batch", "cancel", "b1", "--why", "x", "--yes", "-o", "json"}, {"dlq", "replay", "--yes", "-o", "json"}, {"dlq", "replay", "--yes"}, {"audit", "--repair"},
		{"dlq", "history"}, {"status", "-o", "json"}, {"dlq", "stats"}, {"batch", "list", "-o", "json"},
	} {
		in := func(f *far) []string {
			all := slices.Clone(args)
			for i, a := range all {
				all[i] = strings.NewReplacer("ONE", f.one, "TWO", f.two).Replace(a)
			}
			return all
		}
		here.alike(args, here.command(in(here)...), afar.afar(cli.Streams{}, in(afar)...))
	}
	if one, two := here.trail(here.one)+here.trail(here.two), afar.trail(afar.one)+afar.trail(afar.two); one != two || one == "" {
		t.Errorf("the trail here:\n%s\nthrough --server:\n%s", one, two)
	}
}

// "gateway forget" works through a dispatcher as at Redis, for a gateway that is not in the file.
func TestGatewaysMoveThroughAServer(t *testing.T) {
	t.Parallel()
	here, afar := newFar(t), newFar(t)
	for _, f := range []*far{here, afar} {
		old := f.gateway(f.two)
		old.Name = f.two + "-old"
		f.accept(old, job.Enqueued, charge("o", "1", ""))
	}
	in := func(f *far, args ...string) []string { return append(args, f.two+"-old", "--why", "x", "--yes") }
	here.alike([]string{"forget"}, here.command(in(here, "gateway", "forget", "-o", "json")...), afar.afar(cli.Streams{}, in(afar, "gateway", "forget", "-o", "json")...))
	here.alike([]string{"list"}, here.command("dlq", "history"), afar.afar(cli.Streams{}, "dlq", "history"))
}

// If the dispatcher of --server can't be reached or is none, the command says what is wrong.
func TestAServerThatCantBeAsked(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	strict := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"charge":"ch_1","status":"succeeded"}`)) // to whatever is asked
	}))
	t.Cleanup(strict.Close)
	say := func(args ...string) ran { return f.commandWith(cli.Streams{In: strings.NewReader("")}, args...) }
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"status", "--server", f.url}, 2, "asks for its token"},
		{[]string{"status", "--server", "ftp://x"}, 2, "not the address of a dispatcher"},
		{[]string{"status", "--server", "http://127.0.0.1:1"}, 5, "can't be reached"},
		{[]string{"status", "--server", f.url + "/readyz"}, 5, "not a dispatcher"},
		{[]string{"status", "--server", strict.URL}, 5, "not a dispatcher"},
		{[]string{"status", "--server", f.url, "--token-file", "none"}, 2, "--token-file"},
		{[]string{"reconcile", "--report", "-", "--map", "id=id", "--server", f.url}, 2, "needs Redis itself"},
	} {
		if got := say(c.args...); got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("%v: %d %s", c.args, got.code, got.err)
		}
	}
}

// A command that does not work with --server says so before any other error, such as that of a missing file.
func TestCommandsThatStayHereRefuseAServerFirst(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	for command := range stayLocal {
		if takesServer(command) {
			continue
		}
		args := strings.Fields(command)
		if command == "packs show" {
			args = append(args, "stripe/v1")
		}
		args = append(args, "-c", "missing.yaml", "--server", "http://127.0.0.1:1")
		got := f.commandWith(cli.Streams{In: strings.NewReader("")}, args...)
		if want := fmt.Sprintf("dispatcher: \"dispatcher %s\" can't be done by --server: ", command); got.code != 2 || !strings.HasPrefix(got.err, want) ||
			!strings.Contains(got.err, "hint: leave --server and $DISPATCHER_SERVER out") {
			t.Errorf("%s: exit code %d, %s", command, got.code, got.err)
		}
	}
}

// A token that goes over the network unencrypted is warned of once, also with -q. There is no warning for the same machine.
func TestATokenOverHTTPIsWarnedOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		server, token string
		warned        bool
	}{
		{"http://dispatcher.example:8080", "s3cret", true},
		{"http://10.1.2.3:9400", "s3cret", true},
		{"http://dispatcher.example:8080", "", false},
		{"https://dispatcher.example:8080", "s3cret", false},
		{"http://127.0.0.1:9400", "s3cret", false},
		{"http://[::1]:9400", "s3cret", false},
		{"http://localhost:9400", "s3cret", false},
	} {
		var err bytes.Buffer
		p := &program{Streams: cli.Streams{Err: &err}, server: c.server}
		p.Quiet = true
		p.warnOfTheWay(c.token)
		p.warnOfTheWay(c.token)
		if n := strings.Count(err.String(), "warning: "+c.server+" shows the token"); (n == 1) != c.warned || n > 1 {
			t.Errorf("%s with the token %q: %q", c.server, c.token, err.String())
		}
		if strings.Contains(err.String(), "s3cret") {
			t.Errorf("the token is written: %q", err.String())
		}
	}
}
