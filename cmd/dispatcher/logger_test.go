package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/testkit"
)

func TestTheLogIsTextOrJSON(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"text": `msg="a line" job=inv-1`, "json": `"msg":"a line","job":"inv-1"`} {
		var out bytes.Buffer
		p := &program{Streams: cli.Streams{Err: &out}}
		log := p.logger("warn", format)
		log.Warn("a line", "job", "inv-1")
		log.Info("not at this level")
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) || (format == "json") != json.Valid(out.Bytes()) {
			t.Errorf("%s: %s", format, got)
		}
	}
}

// net/http logs the beginning of an answer that no call asked for. It may hold personal data.
func TestAnAnswerThatNobodyAskedForIsNotLogged(t *testing.T) {
	var out bytes.Buffer
	p := &program{Streams: cli.Streams{Err: &out}}
	takeStandardLog(p.logger("warn", "text"))
	t.Cleanup(func() { log.SetOutput(os.Stderr); log.SetFlags(log.LstdFlags) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"a\":\"b\"}"
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, answer+strings.Replace(answer, "b", "Jane Doe", 1))
		_, _ = io.Copy(io.Discard, c) // until net/http closes it, after it has logged
	}()
	over := make(chan struct{})
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return closing{c, over}, err
	}}
	r, err := http.NewRequest(http.MethodGet, "http://"+ln.Addr().String(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	<-over
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "net/http: Unsolicited response") || strings.Contains(got, "200 OK") || strings.Contains(got, "Jane") {
		t.Errorf("%q", got)
	}
}

// closing is a connection that tells when it is closed.
type closing struct {
	net.Conn
	over chan struct{}
}

// Close implements net.Conn.
func (c closing) Close() error {
	close(c.over)
	return c.Conn.Close()
}

// On a terminal, the log sums up the attempts. Elsewhere, and with --log-level, it has a line for each attempt.
func TestTheLogSumsAttemptsUpOnATerminal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		terminal bool
		flags    []string
		summed   bool
	}{
		"a terminal":              {true, nil, true},
		"a file":                  {false, nil, false},
		"a terminal with a level": {true, []string{"--log-level", "info"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRunning(t)
			r.terminal, r.flags = c.terminal, c.flags
			r.write("gateway.key", oldKey+"\n")
			r.configure("50/s", "")
			r.put(r.keys, 0, 40)
			r.run()
			resp, err := http.Get(r.url() + "/v1/status")
			r.must(err)
			resp.Body.Close()
			testkit.EventuallyEvery(t, 50*time.Millisecond, time.Minute, "every job", func() bool { return r.done(r.keys) == 40 })
			r.stop()
			log := r.log.String()
			sums, lines := strings.Count(log, `msg="in all" calls=40 done=40 parked=0`), strings.Count(log, "msg=attempt")+strings.Count(log, "msg=request")
			if c.summed != (sums == 1) || c.summed != (lines == 0) || !strings.Contains(log, "msg=stopped") {
				t.Errorf("summed %d times, with %d lines of attempts and requests:\n%s", sums, lines, log)
			}
		})
	}
}

// A summary says what was done since the last one. If nothing was done, there is no summary.
func TestASummaryIsOfItsMinute(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &summary{log: slog.New(slog.NewTextHandler(&out, nil))}
	now, before := work{calls: 130, done: 120, parked: 10}, work{calls: 100, done: 98, parked: 2}
	s.tell("in the last minute", now.since(before))
	s.tell("in the last minute", now.since(now))
	if got := out.String(); !strings.Contains(got, `msg="in the last minute" calls=30 done=22 parked=8`) || strings.Count(got, "\n") != 1 {
		t.Error(got)
	}
}
