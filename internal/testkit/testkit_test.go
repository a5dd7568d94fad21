package testkit

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestSharedServerIsStartedOnce(t *testing.T) {
	t.Parallel()
	if a, b := Redis(t), Redis(t); a != b {
		t.Fatalf("two calls, two servers: %s and %s", a, b)
	}
	c := Client(t)
	if err := c.Set(t.Context(), Gateway(t), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestGatewayNamesDiffer(t *testing.T) {
	t.Parallel()
	if a, b := Gateway(t), Gateway(t); a == b || !strings.HasPrefix(a, "testgatewaynamesdiffer-") {
		t.Fatalf("%q and %q", a, b)
	}
}

func TestServerKeepsDataOverRestartWithAOF(t *testing.T) {
	t.Parallel()
	s := Server(t, "--appendonly", "yes", "--appendfsync", "always")
	set(t, s, "k", "v")
	url := s.URL()
	s.Restart()
	if got := s.Client().Get(t.Context(), "k").Val(); got != "v" || s.URL() != url {
		t.Fatalf("after a restart k is %q at %s, was at %s", got, s.URL(), url)
	}
	s.Kill()
	s.Restart()
	if got := s.Client().Get(t.Context(), "k").Val(); got != "v" {
		t.Fatalf("after a kill k is %q", got)
	}
}

func TestServerForgetsWithoutAOF(t *testing.T) {
	t.Parallel()
	s := Server(t)
	set(t, s, "k", "v")
	s.Stop()
	s.Stop()
	s.Restart()
	if err := s.Client().Get(t.Context(), "k").Err(); err != redis.Nil {
		t.Fatalf("k is still there: %v", err)
	}
}

func TestPauseHoldsAnswersBack(t *testing.T) {
	t.Parallel()
	s := Server(t)
	c := s.Client()
	set(t, s, "k", "v")
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Fatal("a paused server answered")
	}
	s.Continue()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatalf("after Continue: %v", err)
	}
}

func TestClusterServesAllSlots(t *testing.T) {
	t.Parallel()
	cl := Cluster(t)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs(cl.Nodes)})
	defer func() { _ = c.Close() }()
	for _, k := range []string{"{a}", "{b}", "{c}", "{d}", "{e}"} {
		if err := c.Set(t.Context(), k, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if n := cl.Owner(k).Client().Exists(t.Context(), k); n.Err() != nil || n.Val() != 1 {
			t.Fatalf("%s is not at its owner: %v", k, n)
		}
	}
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	s := Sentinel(t)
	old := s.Primary()
	s.FailOver()
	if s.Primary() == old {
		t.Fatal("the primary is still the old one")
	}
	set(t, s.Primary(), "k", "v")
}

// The child is a test that is killed. Its server must die with it.
func TestServersDieWithTheTest(t *testing.T) {
	if os.Getenv("TESTKIT_CHILD") != "" {
		s := Server(t)
		write(t, os.Getenv("TESTKIT_CHILD"), strconv.Itoa(s.proc.cmd.Process.Pid))
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	file := t.TempDir() + "/pid"
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersDieWithTheTest$")
	cmd.Env = append(os.Environ(), "TESTKIT_CHILD="+file, "TMPDIR="+t.TempDir())
	out, _ := cmd.CombinedOutput()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("the child wrote no pid: %v\n%s", err, out)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, 5*time.Second, "the child's redis-server to die", func() bool { return dead(pid) })
}

// dead counts a zombie as dead: in a container it may stay one.
func dead(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func set(t *testing.T, s *RedisServer, k, v string) {
	t.Helper()
	if err := s.Client().Set(t.Context(), k, v, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

// A port that one test process has is given to no other, also while nobody listens on it.
func TestPortsAreGivenToOneProcess(t *testing.T) {
	t.Parallel()
	const ports = 200
	if os.Getenv("SPILLWAY_TEST_PORTS") != "" {
		for range ports {
			fmt.Println("port", FreePort(t))
		}
		<-t.Context().Done() // until it is killed
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	for range 3 {
		cmd := exec.Command(program, "-test.run", "^TestPortsAreGivenToOneProcess$", "-test.timeout", "1m")
		cmd.Env = append(os.Environ(), "SPILLWAY_TEST_PORTS=1")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		lines := bufio.NewScanner(out)
		for n := 0; n < ports && lines.Scan(); {
			if port, ok := strings.CutPrefix(lines.Text(), "port "); ok {
				if n++; given[port] {
					t.Errorf("port %s was given twice", port)
				}
				given[port] = true
			}
		}
	}
	if len(given) < 3*ports {
		t.Errorf("%d ports were given, want %d", len(given), 3*ports)
	}
}
