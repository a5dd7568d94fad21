package e2e

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"spillway/internal/feed"
	"spillway/internal/testkit"
)

// cut is a proxy to a PostgreSQL that kills the client at its Nth question.
type cut struct {
	t      *testing.T
	server string
	ln     net.Listener

	mu    sync.Mutex
	asked int    // questions so far
	at    int    // the question at which the client is killed; 0: at none
	after bool   // the question is answered first, and the answer is lost
	kill  func() // kills the client
	met   bool
}

func cutTo(t *testing.T, server string) *cut {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	c := &cut{t: t, server: server, ln: ln}
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			go c.serve(client)
		}
	}()
	return c
}

// next says when the next client is killed.
func (c *cut) next(at int, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked, c.at, c.after, c.met = 0, at, after, false
}

// question counts a question, and reports whether the client is killed at it.
func (c *cut) question() (now, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	c.met = c.met || c.asked == c.at
	return c.asked == c.at, c.after
}

func (c *cut) reached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.met
}

// serve passes on the messages of one client. A question is a statement, the end of several, a piece of a COPY, or its end.
func (c *cut) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.server)
	if err != nil {
		return
	}
	defer server.Close()
	answered, lose := make(chan struct{}), make(chan struct{})
	go func() { // answers
		buf, first := make([]byte, 64<<10), false
		for {
			n, err := server.Read(buf)
			select {
			case <-lose:
				if !first {
					close(answered)
				}
				first = true
			default:
				_, _ = client.Write(buf[:n])
			}
			if err != nil {
				_ = client.Close()
				return
			}
		}
	}()
	in := bufio.NewReader(client)
	head, whole := make([]byte, 5), []byte(nil)
	for begun := false; ; begun = true {
		size := 5
		if !begun { // the first message has no type
			size = 4
		}
		if _, err := io.ReadFull(in, head[:size]); err != nil {
			return
		}
		whole = append(whole[:0], head[:size]...)
		body := make([]byte, binary.BigEndian.Uint32(head[size-4:size])-4)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		whole = append(whole, body...)
		if begun && strings.IndexByte("QSdc", head[0]) >= 0 {
			now, after := c.question()
			if now && after {
				close(lose)
			}
			if now && !after {
				c.kill()
				return
			}
			if now {
				_, _ = server.Write(whole)
				select {
				case <-answered:
				case <-time.After(time.Second): // a piece of a COPY has no answer
				}
				c.kill()
				return
			}
		}
		if _, err := server.Write(whole); err != nil {
			return
		}
	}
}

// copying runs "outcomes copy" and returns how it ended.
func (w *world) copying(killer *cut, args ...string) error {
	w.t.Helper()
	return w.killable(killer, "dispatcher", append([]string{"outcomes", "copy", "--table", "outcomes", "--reader", "ledger"}, args...)...)
}

// killable runs a program that may be killed, and returns how it ended.
func (w *world) killable(killer *cut, program string, args ...string) error {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(bin, program), args...)
	log := &testkit.Log{}
	cmd.Env, cmd.Dir, cmd.Stderr = w.env(false), w.dir, log
	if killer != nil {
		killer.kill = func() { _ = cmd.Process.Kill() }
	}
	if err := testkit.Start(cmd); err != nil {
		w.t.Fatal(err)
	}
	err := cmd.Wait()
	if err != nil && (killer == nil || !killer.reached()) {
		w.t.Fatalf("%s: %v\n%s", program, err, log)
	}
	return err
}

// told returns all outcomes of the feed, without acknowledging any.
func (w *world) told() (all []feed.Outcome) {
	w.t.Helper()
	for line := range strings.Lines(w.ok("dispatcher", "outcomes")) {
		var o feed.Outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// copied returns the rows of the table in the order of their cursors, as lineOf writes them.
func copied(t *testing.T, c *pgx.Conn) []string {
	t.Helper()
	var made bool
	if err := c.QueryRow(t.Context(), `SELECT to_regclass('outcomes') IS NOT NULL`).Scan(&made); err != nil {
		t.Fatal(err)
	} else if !made {
		return nil
	}
	rows, err := c.Query(t.Context(), `SELECT concat_ws(' ', cursor, gateway, coalesce(id, '-'), state, coalesce(reason, '-'), coalesce(status, 0), coalesce(amount::text, '-'), coalesce(currency, '-'), attempts,
		to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')) FROM outcomes ORDER BY cursor`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func lineOf(o feed.Outcome) string {
	or := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	reason, amount := "-", "-"
	if o.Reason != nil {
		reason = string(*o.Reason)
	}
	if o.Amount != nil {
		amount = o.Amount.String()
	}
	return fmt.Sprintf("%s %s %s %s %s %d %s %s %d %s", o.Cursor, o.Gateway, or(o.ID), o.State, reason, o.Status, amount, or(o.Currency), o.Attempts, o.At.UTC().Format("2006-01-02 15:04:05.000000"))
}

// same compares the table with the feed, row by row.
func same(t *testing.T, rows []string, all []feed.Outcome) {
	t.Helper()
	for i := range max(len(rows), len(all)) {
		var row, line string
		if i < len(rows) {
			row = rows[i]
		}
		if i < len(all) {
			line = lineOf(all[i])
		}
		if row != line {
			t.Fatalf("%d rows of %d outcomes; the first that differs is number %d:\n%s\n%s", len(rows), len(all), i+1, row, line)
		}
	}
}

// follower returns an "enqueue --follow".
func (w *world) follower(args []string) *exec.Cmd {
	return exec.Command(filepath.Join(bin, "enqueue"), append(args, "--follow")...)
}
