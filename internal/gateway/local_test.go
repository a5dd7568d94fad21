package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/internal/job"
)

func refused(call string, errno syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError(call, errno)}
}

// What this machine lacks is no fault of the gateway's, whatever was being done; what the gateway or somebody on the way to it says is.
func TestFaultsOfThisMachineAreToldFromTheGateways(t *testing.T) {
	t.Parallel()
	c, err := New(Config{URL: "https://127.0.0.1:1/"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for errno, local := range map[syscall.Errno]bool{
		syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOBUFS: true, syscall.ENOMEM: true, syscall.EADDRNOTAVAIL: true,
		syscall.EACCES: true, syscall.EPERM: true, syscall.ENETDOWN: true,
		syscall.ECONNREFUSED: false, syscall.ECONNRESET: false, syscall.ETIMEDOUT: false, syscall.EHOSTUNREACH: false, syscall.ENETUNREACH: false, syscall.EPIPE: false,
	} {
		cause := refused("connect", errno)
		proxy := &Proxy{Addr: "proxy:3128"}
		for where, err := range map[string]error{
			"connecting":        c.notSent(ctx, c.dialer.dialError(ctx, cause)),
			"the handshake":     c.notSent(ctx, c.dialer.handshakeError(ctx, cause)),
			"the proxy":         c.notSent(ctx, proxy.broken(ctx, c.dialer.addr, cause)),
			"before the write":  c.notSent(ctx, cause),
			"after the write":   c.noAnswer(ctx, cause),
			"within net/http's": c.notSent(ctx, fmt.Errorf("proxyconnect: %w", c.dialer.dialError(ctx, cause))),
		} {
			if errors.Is(err, job.ErrLocal) != local || !strings.Contains(err.Error(), errno.Error()) {
				t.Errorf("%v while %s: local is %v, want %v: %v", errno, where, !local, local, err)
			}
		}
	}
}

// That no name server answers is this machine's fault; what one has answered is about the name.
func TestLookUpsThatNobodyAnswersAreAFaultOfThisMachine(t *testing.T) {
	t.Parallel()
	d := newDialer("gateway.example:443", true, time.Second, nil)
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		err   net.DNSError
		local bool
		says  string
	}{
		"no such host":       {net.DNSError{Err: "no such host", IsNotFound: true}, false, "no such host"},
		"servfail":           {net.DNSError{Err: "server misbehaving", IsTemporary: true}, false, "the name server failed"},
		"lame":               {net.DNSError{Err: "lame referral"}, false, "the name server failed"},
		"broken off":         {net.DNSError{Err: "operation was canceled", UnwrapErr: context.Canceled}, false, "failed"},
		"time-out":           {net.DNSError{Err: "i/o timeout", IsTimeout: true}, true, "did not answer in time"},
		"no resolv.conf":     {net.DNSError{Err: "read udp 127.0.0.1:4->127.0.0.1:53: read: connection refused", IsTemporary: true}, true, "no name server answers"},
		"no way there":       {net.DNSError{Err: "dial udp 10.0.0.2:53: connect: network is unreachable", IsTemporary: true}, true, "no name server answers"},
		"getaddrinfo, again": {net.DNSError{Err: "Temporary failure in name resolution", IsTemporary: true}, true, "no name server answers"},
		"no descriptor":      {net.DNSError{Err: "dial udp 10.0.0.2:53: socket: too many open files"}, true, "too many open files"},
		"getaddrinfo":        {net.DNSError{Err: "lookup gateway.example: too many open files"}, true, "too many open files"},
	} {
		ctx := t.Context()
		if tc.err.UnwrapErr != nil {
			ctx = cut
		}
		tc.err.Name = "gateway.example"
		err := d.dialError(ctx, &net.OpError{Op: "dial", Err: &tc.err})
		if errors.Is(err, job.ErrLocal) != tc.local || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: local is %v, want %v: %v", name, !tc.local, tc.local, err)
		}
	}
}

// The resolver itself, with a name server that is not there.
func TestAResolverWithoutAServer(t *testing.T) {
	t.Parallel()
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", gone.LocalAddr().String())
	}}
	_, err = r.LookupHost(t.Context(), "gateway.example.com.")
	d := newDialer("gateway.example:443", true, time.Second, nil)
	if got := d.dialError(t.Context(), err); !errors.Is(got, job.ErrLocal) {
		t.Errorf("%v, of %v", got, err)
	}
}

// Reach opens a connection over which nothing is sent, and says why it could not.
func TestReach(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{URL: "http://" + ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Reach(t.Context()); err != nil {
		t.Error(err)
	}
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if sent, err := io.ReadAll(conn); len(sent) > 0 || err != nil {
		t.Errorf("it sent %q, %v", sent, err)
	}
	ln.Close()
	if err := c.Reach(t.Context()); err == nil || errors.Is(err, job.ErrLocal) {
		t.Errorf("a gateway that refuses: %v", err)
	}
}
