package testkit

import (
	"bufio"
	"crypto/rand"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Monitored returns the commands that the shared Redis got while do ran, also those of other tests: a line each, as MONITOR prints them.
func Monitored(t *testing.T, do func()) (lines []string) {
	t.Helper()
	opt, err := redis.ParseURL(Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	conn, err := net.Dial(opt.Network, opt.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	next := func() string {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	if got := next(); got != "+OK\r\n" {
		t.Fatalf("MONITOR answers %q", got)
	}
	do()
	end := rand.Text() // scripts that other tests load may have any word
	if err := c.Echo(t.Context(), end).Err(); err != nil {
		t.Fatal(err)
	}
	for line := next(); !strings.Contains(line, end); line = next() {
		lines = append(lines, line)
	}
	return lines
}
