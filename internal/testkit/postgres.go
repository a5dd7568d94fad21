package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// PostgresServer is a PostgreSQL of one test, which may break it. Its data survives Kill and Restart.
type PostgresServer struct {
	t    testing.TB
	bin  string // directory of its programs
	dir  string
	port int
	as   account
	mu   sync.Mutex
	proc *process
}

// account is the account of the server, since PostgreSQL refuses root. The zero account is that of the test.
type account struct {
	uid, gid uint32
	other    bool
}

// Postgres starts a PostgreSQL for this test alone. It ends with the test, and has a superuser spillway without a password. The test is skipped if PostgreSQL is not installed.
func Postgres(t testing.TB) *PostgresServer {
	t.Helper()
	bin, ok := postgresPrograms()
	if !ok {
		t.Skip("PostgreSQL is not installed here, and make install-test-deps could not install it: make test runs it")
	}
	as, err := notRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "spillway-postgres-") // other accounts may not use the test's own directory
	if err != nil {
		t.Fatal(err)
	}
	s := &PostgresServer{t: t, bin: bin, dir: dir, port: FreePort(t), as: as}
	t.Cleanup(func() { s.Kill(); _ = os.RemoveAll(dir) })
	if as.other {
		if err := os.Chown(dir, int(as.uid), int(as.gid)); err != nil {
			t.Fatal(err)
		}
	}
	begin := s.command("initdb", "-D", s.data(), "-U", "spillway", "-A", "trust", "-N", "--no-instructions", "--no-locale", "-E", "UTF8")
	if out, err := begin.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	s.start()
	return s
}

// URL returns postgres://… of the database postgres. It stays the same over Restart.
func (s *PostgresServer) URL() string { return s.URLAt(s.Addr()) }

// URLAt is URL with another host:port, that of a line to the server.
func (s *PostgresServer) URLAt(addr string) string {
	return "postgres://spillway@" + addr + "/postgres?sslmode=disable&connect_timeout=10"
}

// Addr returns 127.0.0.1:PORT.
func (s *PostgresServer) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// Database creates a database, and returns its URL. Tests that don't kill the server can share the server.
func (s *PostgresServer) Database(t testing.TB, name string) string {
	t.Helper()
	if _, err := PostgresConn(t, s.URL()).Exec(context.Background(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(s.URL(), "/postgres?", "/"+name+"?", 1)
}

// PostgresConn returns a connection, which is closed when the test ends.
func PostgresConn(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// Kill kills the server (SIGKILL), as a power failure would. Its child processes end soon after.
func (s *PostgresServer) Kill() {
	s.mu.Lock()
	p := s.proc
	s.mu.Unlock()
	if p == nil {
		return
	}
	if !p.gone() {
		_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may end by itself in between
	}
	<-p.exited
}

// Restart kills the server, if it still runs, and starts it again on its port and with its data.
func (s *PostgresServer) Restart() {
	s.t.Helper()
	s.Kill()
	s.start()
}

func (s *PostgresServer) data() string { return filepath.Join(s.dir, "data") }

func (s *PostgresServer) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, dieWithUs()
	s.as.use(cmd.SysProcAttr)
	return cmd
}

// start starts the server. It tries again while processes of a killed server still hold its memory.
func (s *PostgresServer) start() {
	s.t.Helper()
	var last *process
	if !Within(startWithin, often, func() bool {
		p := &process{port: s.port, output: &Log{}, exited: make(chan struct{})}
		last = p
		// Without fsync a power failure would lose data; a killed process loses none.
		p.cmd = s.command("postgres", "-D", s.data(), "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off",
			"-c", "max_connections=40")
		p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
		if err := spawn(p.cmd); err != nil {
			return false
		}
		go func() {
			_ = p.cmd.Wait()
			close(p.exited)
		}()
		s.mu.Lock()
		s.proc = p
		s.mu.Unlock()
		return Within(startWithin, often, func() bool { return p.gone() || s.answers() }) && !p.gone()
	}) {
		s.t.Fatalf("PostgreSQL on port %d did not come up:\n%s", s.port, last.output)
	}
}

func (s *PostgresServer) answers() bool {
	c, err := pgx.Connect(context.Background(), s.URL())
	if err != nil {
		return false
	}
	return c.Close(context.Background()) == nil
}

// postgresPrograms returns the directory of initdb and postgres. On Debian it is not on the PATH.
func postgresPrograms() (dir string, ok bool) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.Reverse(dirs) // the newest first
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append([]string{filepath.Dir(path)}, dirs...)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
			return dir, true
		}
	}
	return "", false
}

// notRoot returns an account that is not root's.
func notRoot() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return account{}, fmt.Errorf("the account %s: %w", name, err)
		}
		return account{uint32(uid), uint32(gid), true}, nil
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is no account postgres or nobody")
}
