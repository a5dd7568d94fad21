package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"time"
)

// server is the redis-server of this run.
type server struct {
	cmd  *exec.Cmd
	addr string
	dir  string
}

// startRedis starts one; args are added to its command line.
func startRedis(args ...string) (*server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("no redis-server on the PATH: run make install-test-deps")
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	dir, err := os.MkdirTemp("", "spillway-bench-")
	if err != nil {
		return nil, err
	}
	s := &server{addr: addr, dir: dir}
	s.cmd = exec.Command(path, append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir}, args...)...)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if conn, err := net.Dial("tcp", s.addr); err == nil {
			return s, conn.Close()
		}
	}
	s.stop()
	return nil, errors.New("redis-server did not start within 30 s")
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}
