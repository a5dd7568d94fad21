package console

import (
	"bufio"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

var readsPayload = regexp.MustCompile(`(?i)"hmget" .*job:\S+ .*"p\d*"`)

// monitored returns the commands that Redis was sent while something was done.
func monitored(t *testing.T, do func()) (lines []string) {
	t.Helper()
	opt, err := redis.ParseURL(testkit.Redis(t))
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
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
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
	if err := c.Echo(t.Context(), "the end").Err(); err != nil {
		t.Fatal(err)
	}
	for line := next(); !strings.Contains(line, "the end"); line = next() {
		lines = append(lines, line)
	}
	return lines
}

// A preview needs no payload whose record says its money, and so does the act.
func TestAPreviewReadsNoPayloads(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	ids := r.park(59, `{"amount":1200,"currency":"EUR"}`, job.Refused, "HTTP 402: no")
	if err := r.db.Client.HDel(t.Context(), r.keys().Job(ids[7]), "m").Err(); err != nil { // as an old version left it
		t.Fatal(err)
	}
	reads := 0
	for _, line := range monitored(t, func() {
		preview, _ := r.do("do=discard&reason=refused")
		wants(t, preview, "Discard: 59 jobs")
	}) {
		if strings.Contains(line, r.g.Name) && readsPayload.MatchString(line) {
			reads++
		}
	}
	if reads != 2 { // the one, by the preview and by the act
		t.Errorf("%d payloads were read, and one record alone does not say its money: twice, by preview and act", reads)
	}
}
