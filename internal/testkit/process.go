package testkit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

const install = `redis-server is not on the PATH, and the tests need a real one.
Run "make test", which installs it, or install it yourself: apt-get install redis-server (Debian, Ubuntu), brew install redis (macOS)`

// serverVariable is the environment variable with the program that tests run instead of redis-server: another version, or Valkey (make servers).
const serverVariable = "SPILLWAY_REDIS_SERVER"

// process is one running redis-server.
type process struct {
	cmd    *exec.Cmd
	port   int
	output *Log
	exited chan struct{}
}

type launchParams struct {
	dir  string // working directory; "" is the machine's temporary directory
	port int    // 0 picks a free one, and another when that is taken meanwhile
	conf string // configuration file that the server may rewrite; "" is none
	args []string
	env  []string // beside the test's own, NAME=value
}

func volatile() []string { return []string{"--save", "", "--appendonly", "no"} }

func (p *process) addr() string { return "127.0.0.1:" + strconv.Itoa(p.port) }
func (p *process) url() string  { return "redis://" + p.addr() + "/0" }

// launch starts a redis-server and waits until it answers.
func launch(lp launchParams) (*process, error) {
	if lp.port != 0 {
		return launchOn(lp)
	}
	var last error
	for range 5 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		lp.port = port
		p, err := launchOn(lp)
		if err == nil {
			return p, nil
		}
		last = err
	}
	return nil, last
}

func launchOn(lp launchParams) (*process, error) {
	bin, err := exec.LookPath(cmp.Or(os.Getenv(serverVariable), "redis-server"))
	if err != nil {
		return nil, errors.New(install)
	}
	if lp.dir == "" {
		lp.dir = os.TempDir()
	}
	p := &process{port: lp.port, output: &Log{}, exited: make(chan struct{})}
	p.cmd = exec.Command(bin, lp.commandLine()...)
	p.cmd.Env = append(os.Environ(), lp.env...)
	if err := p.begin(); err != nil {
		return nil, err
	}
	return p, p.awaitAnswer()
}

func (lp launchParams) commandLine() []string {
	var args []string
	if lp.conf != "" {
		args = append(args, lp.conf)
	}
	args = append(args, "--port", strconv.Itoa(lp.port), "--bind", "127.0.0.1", "--daemonize", "no",
		"--dir", lp.dir, "--loglevel", "notice")
	return append(args, lp.args...)
}

func (p *process) begin() error {
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if err := Start(p.cmd); err != nil {
		return fmt.Errorf("starting %s: %w", p.cmd.Path, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	return nil
}

// awaitAnswer asks for the process id, so that another server that took the port meanwhile is not mistaken for ours.
func (p *process) awaitAnswer() error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	c := connect(p.addr())
	defer func() { _ = c.Close() }()
	ours := "process_id:" + strconv.Itoa(p.cmd.Process.Pid) + "\r"
	ok := Within(startWithin, often, func() bool {
		info, err := c.Info(ctx, "server").Result()
		return p.gone() || err == nil && strings.Contains(info, ours) || err != nil && asksForPassword(err)
	})
	if ok && !p.gone() {
		return nil
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	return fmt.Errorf("redis-server on port %d did not come up:\n%s", p.port, p.output)
}

func asksForPassword(err error) bool { return strings.HasPrefix(err.Error(), "NOAUTH") }

func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Start starts a program that dies with the test process, whatever the way that process ends.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = dieWithUs()
	return spawn(cmd)
}

// spawn starts cmd from a thread that never ends: the kernel sends a parent-death signal when the thread
// that started the child ends, not when the process does.
func spawn(cmd *exec.Cmd) error {
	answer := make(chan error)
	spawner() <- func() { answer <- cmd.Start() }
	return <-answer
}

var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

var (
	portMu sync.Mutex
	given  = map[int]bool{}
)

// freePort searches below the ports that the kernel gives to outgoing connections, so that the port of a stopped server
// is still free when it returns. The port 10,000 above must be free too, for the bus of a cluster.
func freePort() (int, error) {
	portMu.Lock()
	defer portMu.Unlock()
	for range 500 {
		port := 11000 + rand.IntN(9000)
		if given[port] || !claim(port) || listens(port) || listens(port+10000) {
			continue
		}
		given[port] = true
		return port, nil
	}
	return 0, errors.New("no free port between 11000 and 20000 on 127.0.0.1")
}
