package provider

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// stamps waits until the kernel stamps what comes in: it begins in the background when the first socket asks for it.
func stamps(t *testing.T) {
	t.Helper()
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	waitFor(t, func() bool {
		out, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		io.WriteString(out, "x")
		wrote := time.Now()
		<-time.After(20 * time.Millisecond)
		in, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		_, at, err := in.(*tellingConn).ReadStamped(make([]byte, 1))
		return err == nil && !at.After(wrote.Add(10*time.Millisecond))
	})
}

// TestARequestThatCameBeforeItsConnectionWasAccepted checks that such a request has the stamp of its arrival, and not of its read: a busy machine accepts late.
func TestARequestThatCameBeforeItsConnectionWasAccepted(t *testing.T) {
	t.Parallel()
	stamps(t)
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}")
	wrote := time.Now()
	<-time.After(20 * time.Millisecond)
	p := New(Config{})
	served := make(chan error, 1)
	go func() { served <- p.Serve(t.Context(), ln) }()
	t.Cleanup(func() { <-served })
	if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		t.Fatal(err)
	}
	if at := time.UnixMicro(p.Calls()[0].At); at.After(wrote.Add(10 * time.Millisecond)) {
		t.Errorf("stamped %v after it was written", at.Sub(wrote))
	}
}
