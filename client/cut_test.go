package client_test

import (
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// cutter is a proxy that cuts connections at random places of their answers.
type cutter struct {
	url     string
	answers atomic.Int64 // a connection is cut within so many bytes of answers; 0: never
	cut     atomic.Int64 // so many were
}

func cutting(t *testing.T, to string) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	p := &cutter{url: "http://" + ln.Addr().String()}
	go func() {
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			go p.carry(from, strings.TrimPrefix(to, "http://"))
		}
	}()
	return p
}

func (p *cutter) carry(from net.Conn, to string) {
	defer from.Close()
	on, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer on.Close()
	go func() { _, _ = io.Copy(on, from); _ = on.(*net.TCPConn).CloseWrite() }()
	most := p.answers.Load()
	if most == 0 {
		_, _ = io.Copy(from, on)
		return
	}
	if _, err := io.CopyN(from, on, rand.Int64N(most)); err == nil {
		p.cut.Add(1)
	}
}
