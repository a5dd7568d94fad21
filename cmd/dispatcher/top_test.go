package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"spillway/internal/bucket"
	"spillway/internal/cli"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// TestTopChild is dispatcher top in a process of its own. The tests below start it on a pseudo-terminal.
func TestTopChild(*testing.T) {
	if args := os.Getenv("TOP_CHILD"); args != "" {
		os.Exit(cli.Main(name, newCommand, strings.Fields(args), cli.Standard()))
	}
}

// terminal is dispatcher top on a pseudo-terminal.
type terminal struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	seen bytes.Buffer
	end  chan struct{}
}

func (r *rig) top(env ...string) *terminal {
	r.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestTopChild$")
	cmd.Env = append(os.Environ(), append([]string{"TERM=xterm-256color", "NO_COLOR=", "TOP_CHILD=top -c " + r.file}, env...)...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 200})
	r.must(err)
	x := &terminal{t: r.t, tty: tty, cmd: cmd, end: make(chan struct{})}
	go x.read()
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = tty.Close(); <-x.end })
	return x
}

func (x *terminal) read() {
	defer close(x.end)
	part := make([]byte, 4096)
	for {
		n, err := x.tty.Read(part)
		x.mu.Lock()
		x.seen.Write(part[:n])
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// text returns all that was drawn so far.
func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen.String()
}

// escape matches a control sequence, and colour one that sets a colour.
var (
	escape = regexp.MustCompile("\x1b(?:\\[[0-9;?>=$]*[a-zA-Z]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\))")
	colour = regexp.MustCompile("\x1b\\[(?:\\d+;)*(?:3[0-8]|9[0-7])[;m]")
)

// picture returns what was drawn since the terminal was last cleared.
func (x *terminal) picture() string {
	text := x.text()
	return escape.ReplaceAllString(text[max(0, strings.LastIndex(text, "\x1b[2J")):], "")
}

// shows waits until one of some texts is on the screen, and returns that text. Top draws only what has changed. So the window changes its size
// until the text is there: after each change, top draws the whole screen.
func (x *terminal) shows(wanted ...string) string {
	x.t.Helper()
	for within, n := time.Now().Add(3*time.Minute), uint16(0); ; n++ {
		picture := x.picture()
		for _, want := range wanted {
			if strings.Contains(picture, want) {
				return want
			}
		}
		if time.Now().After(within) {
			x.t.Fatalf("the terminal never showed %q:\n%q", wanted, picture)
		}
		if err := pty.Setsize(x.tty, &pty.Winsize{Rows: 24, Cols: 200 + n%2}); err != nil {
			x.t.Fatal(err)
		}
		<-time.After(150 * time.Millisecond) // for a busy machine to draw in
	}
}

// does presses the key of an act and answers its question with y, until top says that the act is done. On a busy machine Redis may answer an
// act too late. Then top says that it could not do it, and a person tries again.
func (x *terminal) does(key, what, said string) {
	x.t.Helper()
	for {
		x.press(key)
		x.shows(what + "? y/n")
		x.press("y")
		if x.shows(said, "could not "+what) == said {
			return
		}
	}
}

func (x *terminal) press(keys string) {
	x.t.Helper()
	if _, err := x.tty.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// ends waits for the program's end and returns its exit code.
func (x *terminal) ends() int {
	x.t.Helper()
	err := x.cmd.Wait()
	<-x.end
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return 0
}

func (r *rig) paused(gateway string) bool {
	r.t.Helper()
	h, err := dispatch.Hold(r.ctx, r.c, r.gateway(gateway))
	r.must(err)
	return h.Paused
}

func (r *rig) pause(gateway string) {
	r.t.Helper()
	pacer, err := dispatch.Pacer(r.c, r.gateway(gateway), bucket.NewMetrics(nil))
	r.must(err)
	defer pacer.Close(r.ctx)
	r.must(pacer.Pause(r.ctx, "maintenance"))
}

func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(r.one, charge("a", "1050", ""), job.Refused, 402, "HTTP 402")
	x := r.top()
	x.shows("> " + r.one)
	x.shows("idle")
	x.does("p", "pause "+r.one, r.one+" paused")
	if !r.paused(r.one) || r.paused(r.two) {
		t.Errorf("the gateway is paused: %t, the other one: %t", r.paused(r.one), r.paused(r.two))
	}
	x.shows("paused: by ")
	if !colour.MatchString(x.text()) {
		t.Errorf("a pause has no colour: %q", x.text())
	}
	x.does("r", "resume "+r.one, r.one+" resumed")
	if r.paused(r.one) {
		t.Error("the gateway is still paused")
	}
	x.press("\r")
	x.shows("EUR 10.50")
	x.press("q")
	if code := x.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestTopWithoutColours(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pause(r.one)
	x := r.top("NO_COLOR=yes")
	x.shows("paused: maintenance")
	x.press("\x03")
	if code := x.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if found := colour.FindString(x.text()); found != "" {
		t.Errorf("NO_COLOR is set, and there is %q", found)
	}
}

func TestTopEndsByASignal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	x := r.top()
	x.shows("> " + r.one)
	r.must(x.cmd.Process.Signal(syscall.SIGTERM))
	if code := x.ends(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(x.text(), "\x1b[?1049l") {
		t.Error("the terminal was not given back")
	}
}

func TestTopIsForTerminals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, c := range []struct {
		s    cli.Streams
		args []string
	}{
		{cli.Streams{}, nil},
		{cli.Streams{OutTerminal: true}, nil},
		{cli.Streams{InTerminal: true}, nil},
		{cli.Streams{InTerminal: true, OutTerminal: true}, []string{"-o", "json"}},
	} {
		var out, errs bytes.Buffer
		c.s.In, c.s.Out, c.s.Err = strings.NewReader("q"), &out, &errs
		code := cli.Main(name, newCommand, append([]string{"top", "-c", r.file}, c.args...), c.s)
		if code != 2 || out.Len() > 0 || !strings.Contains(errs.String(), `"watch dispatcher status"`) {
			t.Errorf("%+v: exit code %d, %q, %q", c, code, out.String(), errs.String())
		}
	}
}
