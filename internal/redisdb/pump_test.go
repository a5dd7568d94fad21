package redisdb

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// A pipeline may be of any length, and so may its answers.
func TestEmbeddedTakesLongPipelines(t *testing.T) {
	t.Parallel()
	db := open(t, "embedded", Options{})
	value := strings.Repeat("x", 1<<10)
	var echoes []*redis.StringCmd
	if _, err := db.Client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for range 1 << 10 {
			echoes = append(echoes, p.Echo(t.Context(), value))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i, e := range echoes {
		if e.Val() != value {
			t.Fatalf("answer %d is %d bytes long", i, len(e.Val()))
		}
	}
}

// pumped returns both ends of a pipe, the first one pumped. synctest fails a test that leaves a goroutine behind.
func pumped() (*pump, net.Conn) {
	near, far := net.Pipe()
	return newPump(near), far
}

func TestPumpKeepsOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := pumped()
		want := bytes.Repeat([]byte("0123456789"), 1000)
		for rest := want; len(rest) > 0; rest = rest[10:] {
			if n, err := near.Write(rest[:10]); n != 10 || err != nil {
				t.Fatal(n, err)
			}
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("what arrived is not what was written (%v)", err)
		}
		if err := errors.Join(near.Close(), far.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestPumpEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(near, far net.Conn) error{
		"closed here":  func(near, _ net.Conn) error { return near.Close() },
		"closed there": func(_, far net.Conn) error { return far.Close() },
	} {
		for what, written := range map[string]string{"nothing under way": "", "bytes under way": "lost"} {
			t.Run(name+", "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					near, far := pumped()
					if written != "" {
						if _, err := near.Write([]byte(written)); err != nil {
							t.Fatal(err)
						}
						synctest.Wait()
					}
					if err := end(near, far); err != nil {
						t.Fatal(err)
					}
					_, _ = near.Write([]byte("x")) // it may be taken, if nothing was tried since the other side left
					synctest.Wait()
					if _, err := near.Write([]byte("x")); err == nil {
						t.Error("a write after the end")
					}
					if _, err := near.Read(make([]byte, 1)); err == nil {
						t.Error("a read after the end")
					}
					if err := errors.Join(near.Close(), near.Close(), far.Close()); err != nil {
						t.Errorf("closing again: %v", err)
					}
				})
			})
		}
	}
}

func TestPumpKeepsDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := pumped()
		defer func() { _, _ = near.Close(), far.Close() }()
		if err := near.SetDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Write([]byte("in time")); err != nil {
			t.Error(err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a read past its deadline: %v", err)
		}
		if _, err := near.Write([]byte("late")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a write past its deadline: %v", err)
		}
		if err := near.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Write([]byte(", again")); err != nil {
			t.Error(err)
		}
		got := make([]byte, len("in time, again"))
		if _, err := io.ReadFull(far, got); err != nil || string(got) != "in time, again" {
			t.Errorf("%q arrived, %v", got, err)
		}
	})
}
