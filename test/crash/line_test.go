package crash

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// How a process crashes at a Redis command.
const (
	before = "before" // killed when all commands before it have run, and it was not sent
	torn   = "torn"   // killed when half of it was sent
	after  = "after"  // killed when it has run, and nobody has read its answer
	unsent = "unsent" // its connection breaks before it was sent, and the process lives on
	lost   = "lost"   // its connection breaks when it has run, before the answer is read, and the process lives on
)

// survived reports whether a process lives on after its crash point.
func survived(how string) bool { return how == unsent || how == lost }

// line is the proxy of a doomed process to Redis, inside that process. It counts the commands and strikes at one of them.
type line struct {
	redis string
	door  net.Listener
	how   string

	mu    sync.Mutex // its holder may send; strike never unlocks it
	armed bool
	at    int         // strike at this command
	count int         // commands so far, since it was armed
	still atomic.Bool // nothing passes to the process any more
	hit   atomic.Bool
}

// newLine listens for the process's own connections to Redis.
func newLine(redis, how string, at int) (*line, error) {
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &line{redis: redis, door: door, how: how, at: at}
	go l.accept()
	return l, nil
}

func (l *line) addr() string { return l.door.Addr().String() }

// arm starts the count.
func (l *line) arm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = true
}

// counted returns how many commands have passed.
func (l *line) counted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

func (l *line) accept() {
	for {
		client, err := l.door.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.redis)
		if err != nil {
			_ = client.Close()
			continue
		}
		w := &wire{line: l, client: client, server: server, heard: make(chan struct{})}
		go w.questions()
		go w.answers()
	}
}

// wire is one connection.
type wire struct {
	line           *line
	client, server net.Conn
	mute           atomic.Bool // its client hears nothing any more
	heard          chan struct{}
	once           sync.Once
}

func (w *wire) close() {
	_ = w.client.Close()
	_ = w.server.Close()
}

// questions passes commands on, whole ones only, and together if they came together.
func (w *wire) questions() {
	defer w.close()
	var held []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := w.client.Read(buf)
		if err != nil {
			return
		}
		var cmds []command
		cmds, held = split(append(held, buf[:n]...))
		if w.line.send(w, cmds) != nil {
			return
		}
	}
}

// answers passes on what Redis answers, and looks for the mark.
func (w *wire) answers() {
	defer w.close()
	buf := make([]byte, 64<<10)
	var tail []byte
	for {
		n, err := w.server.Read(buf)
		if err != nil {
			return
		}
		if w.mute.Load() || w.line.still.Load() {
			if tail = append(tail, buf[:n]...); bytes.Contains(tail, []byte(mark)) {
				w.once.Do(func() { close(w.heard) })
			}
			continue
		}
		if _, err := w.client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// send passes commands on, up to the one at which the process crashes.
func (l *line) send(w *wire, cmds []command) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []byte
	for _, c := range cmds {
		if l.armed && c.counts() {
			if l.count++; l.count == l.at && l.how != "" {
				return l.strike(w, out, c)
			}
		}
		out = append(out, c.raw...)
	}
	_, err := w.server.Write(out)
	return err
}

// strike ends the process, or the connection, at command c. earlier are the bytes that came together with it, before it.
func (l *line) strike(w *wire, earlier []byte, c command) error {
	fmt.Fprintf(os.Stderr, "-- %s command %d: %s\n", l.how, l.at, c)
	l.hit.Store(true)
	if l.how == after || l.how == lost {
		earlier = append(earlier, c.raw...)
	}
	if survived(l.how) {
		w.mute.Store(true)
	} else {
		l.still.Store(true)
	}
	if err := w.run(earlier); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	if survived(l.how) {
		return io.ErrClosedPipe // questions closes the connection
	}
	if l.how == torn {
		_, _ = w.server.Write(c.raw[:len(c.raw)/2])
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {}
}

// mark is what Redis answers when it has run everything before it.
const mark = "spillway-crash-mark"

// run sends commands and waits until Redis has run them.
func (w *wire) run(commands []byte) error {
	if len(commands) == 0 {
		return nil
	}
	commands = append(commands, fmt.Sprintf("*2\r\n$4\r\nPING\r\n$%d\r\n%s\r\n", len(mark), mark)...)
	if _, err := w.server.Write(commands); err != nil {
		return err
	}
	select {
	case <-w.heard:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("redis has not run the commands within %v", patience)
	}
}

// command is one command as it stands on the wire.
type command struct {
	raw   []byte
	words []string // its first few
}

func (c command) String() string { return strings.Join(c.words, " ") }

// counts reports whether the command counts. Those that only set a connection up don't: to die at one is to die before the next command.
func (c command) counts() bool {
	switch strings.ToLower(c.words[0]) {
	case "hello", "auth", "client", "select", "ping":
		return false
	}
	return true
}

// split returns the whole commands of the input, and the rest. A transaction is one command: none of it runs before its end.
func split(in []byte) (cmds []command, rest []byte) {
	for {
		c, n := first(in)
		for at := n; n > 0 && c.is("multi"); {
			one, more := first(in[at:])
			if at += more; more == 0 {
				return cmds, in
			}
			if one.is("exec") || one.is("discard") {
				c.raw, n = bytes.Clone(in[:at]), at
				break
			}
		}
		if n == 0 {
			return cmds, in
		}
		cmds, in = append(cmds, c), in[n:]
	}
}

func (c command) is(name string) bool { return strings.EqualFold(c.words[0], name) }

const mostWords = 5

// first reads one command: *N, then N times $LENGTH and as many bytes. n is 0 while it is not all there.
func first(in []byte) (c command, n int) {
	count, at := number(in, 0)
	for range count {
		length, from := number(in, at)
		if from == 0 || len(in) < from+length+2 {
			return command{}, 0
		}
		if len(c.words) < mostWords {
			c.words = append(c.words, string(in[from:min(from+length, from+60)]))
		}
		at = from + length + 2
	}
	if len(c.words) == 0 {
		return command{}, 0
	}
	c.raw = bytes.Clone(in[:at])
	return c, at
}

// number reads the line at a place, without its first byte, and returns where the next one begins; 0 if it is not all there.
func number(in []byte, at int) (n, next int) {
	if at == 0 && len(in) == 0 || at >= len(in) {
		return 0, 0
	}
	end := bytes.Index(in[at:], []byte("\r\n"))
	if end < 0 {
		return 0, 0
	}
	n, err := strconv.Atoi(string(in[at+1 : at+end]))
	if err != nil {
		panic(fmt.Sprintf("not a Redis command: %q", in[at:at+end]))
	}
	return n, at + end + 2
}
