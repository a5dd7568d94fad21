package provider

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestARequestThatCameBeforeItsConnectionWasAccepted is stamped when it came, not when it was read: a busy machine accepts late.
func TestARequestThatCameBeforeItsConnectionWasAccepted(t *testing.T) {
	t.Parallel()
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(30 * time.Millisecond) // the kernel begins to stamp in the background
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}")
	wrote := time.Now()
	<-time.After(300 * time.Millisecond)
	p := New(Config{})
	served := make(chan error, 1)
	go func() { served <- p.Serve(t.Context(), ln) }()
	t.Cleanup(func() { <-served })
	if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		t.Fatal(err)
	}
	if at := time.UnixMicro(p.Calls()[0].At); at.After(wrote.Add(150 * time.Millisecond)) {
		t.Errorf("stamped %v after it was written", at.Sub(wrote))
	}
}
