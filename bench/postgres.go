package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgres is the PostgreSQL of this run. As with Redis, nothing is flushed to the disk.
type postgres struct {
	url  string
	dir  string
	cmd  *exec.Cmd
	attr *syscall.SysProcAttr
}

const postgresStarts = 30 * time.Second

// startPostgres starts one, as an account that is not root's, which PostgreSQL refuses.
func startPostgres(ctx context.Context) (*postgres, error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "spillway-bench-postgres-")
	if err != nil {
		return nil, err
	}
	p := &postgres{dir: dir, url: fmt.Sprintf("postgres://spillway@127.0.0.1:%d/postgres?sslmode=disable", port)}
	if err := errors.Join(p.notRoot(), p.run(ctx, bin, port)); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *postgres) run(ctx context.Context, bin string, port int) error {
	data := filepath.Join(p.dir, "data")
	begin := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "spillway", "-A", "trust", "-N", "--no-instructions", "--no-locale", "-E", "UTF8")
	begin.Dir, begin.SysProcAttr = p.dir, p.attr
	if out, err := begin.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	p.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "fsync=off", "-c", "log_min_messages=fatal")
	p.cmd.Dir, p.cmd.SysProcAttr = p.dir, p.attr
	if err := p.cmd.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(postgresStarts); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if c, err := pgx.Connect(ctx, p.url); err == nil {
			return c.Close(ctx)
		}
	}
	return fmt.Errorf("PostgreSQL did not start within %s", postgresStarts)
}

// notRoot has the programs run as postgres or nobody, where this program is root.
func (p *postgres) notRoot() error {
	if os.Geteuid() != 0 {
		return nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		who, err = user.Lookup("nobody")
	}
	if err != nil {
		return errors.New("PostgreSQL does not run as root, and there is no account postgres or nobody")
	}
	uid, uidErr := strconv.ParseUint(who.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(who.Gid, 10, 32)
	p.attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return errors.Join(uidErr, gidErr, os.Chown(p.dir, int(uid), int(gid)))
}

func (p *postgres) stop() {
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // at once, with all of its processes
		_ = p.cmd.Wait()
	}
	_ = os.RemoveAll(p.dir)
}

// postgresPrograms returns the folder of initdb and postgres, which Debian does not have on the PATH.
func postgresPrograms() (string, error) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.Reverse(dirs) // the newest first
	path, _ := exec.LookPath("initdb")
	for _, dir := range append(dirs, filepath.Dir(cmp.Or(path, "/initdb"))) {
		_, initErr := os.Stat(filepath.Join(dir, "initdb"))
		_, err := os.Stat(filepath.Join(dir, "postgres"))
		if initErr == nil && err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no PostgreSQL: run make install-test-deps")
}

func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return ln.Addr().(*net.TCPAddr).Port, ln.Close()
}
