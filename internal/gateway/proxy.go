package gateway

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Proxy is the HTTP proxy through which a gateway is called.
type Proxy struct {
	// Addr is its host and port.
	Addr string
	url  *url.URL
}

// ParseProxy parses a URL like http://user:password@proxy:3128. Its errors don't quote it. Empty = no proxy:
// nil.
func ParseProxy(raw string) (*Proxy, error) {
	if raw == "" {
		return nil, nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return nil, errors.New("it can't be read: write http://user:password@host:port, with special characters of the password as %XX")
	}
	return &Proxy{Addr: u.Host, url: u}, nil
}

// mostOfProxy is how much of a proxy's answer is read, in bytes. Its body is not needed.
const mostOfProxy = 64 << 10

// Tunnel asks the proxy at the other end of a connection for a tunnel to addr. After success, what is written
// goes to addr.
func (p *Proxy) Tunnel(ctx context.Context, c net.Conn, addr string) error {
	end := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer end()
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{"User-Agent": {"spillway"}}}
	if user := p.url.User; user != nil {
		password, _ := user.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := r.Write(c); err != nil {
		return p.broken(ctx, addr, err)
	}
	answer := &io.LimitedReader{R: c, N: mostOfProxy}
	in := bufio.NewReaderSize(answer, 4096)
	resp, err := http.ReadResponse(in, r)
	if err != nil && answer.N == 0 {
		return &callError{text: fmt.Sprintf("the proxy %s opened no way to %s: its answer is longer than %d KiB", p.Addr, addr, mostOfProxy>>10)}
	}
	if err != nil {
		return p.broken(ctx, addr, err)
	}
	switch {
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return p.refusal()
	case resp.StatusCode != http.StatusOK:
		return &callError{text: fmt.Sprintf("the proxy %s opens no way to %s: it answered %d", p.Addr, addr, resp.StatusCode)}
	case in.Buffered() > 0:
		return &callError{text: "the proxy " + p.Addr + " said more than it was asked for"}
	case !end():
		return p.broken(ctx, addr, context.Cause(ctx))
	}
	return nil
}

// refusal is the error for a proxy that rejects the password. It can't come from a gateway, even without a
// tunnel.
func (p *Proxy) refusal() error {
	return &callError{text: "the proxy " + p.Addr + " does not let us in (407): check user and password in request.proxy"}
}

func (p *Proxy) broken(ctx context.Context, addr string, err error) error {
	why := detail(err)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		why = ": it closed the connection"
	}
	text := because(fmt.Sprintf("the proxy %s opened no way to %s%s", p.Addr, addr, why), err)
	if ctx.Err() != nil {
		text.text, text.cause = fmt.Sprintf("the proxy %s opened no way to %s in time", p.Addr, addr), context.DeadlineExceeded
	}
	return text
}
