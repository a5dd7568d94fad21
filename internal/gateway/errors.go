package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"spillway/internal/job"
)

// Errors are stored in logs and in the job's record. They are made here, only of the gateway's address, times,
// and what the kernel, the resolver or TLS said. They never contain net/http's own texts, which quote URLs and
// answers.

var (
	errTimeout     = errors.New("the time-out")
	errDialTimeout = errors.New("the time-out for connecting")
)

// callError is a sentence with a cause. The cause is found by errors.Is, but its text is not shown.
type callError struct {
	text  string
	cause error
	local bool // a fault of this machine: errors.Is finds job.ErrLocal
}

// Error returns the sentence.
func (e *callError) Error() string { return e.text }

// Unwrap returns the cause.
func (e *callError) Unwrap() error { return e.cause }

// invalid returns the error for a job that can't be made into a request; outcome refuses it.
func invalid(format string, args ...any) error {
	return &job.Error{Code: job.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

// notSent returns why nothing was written.
func (c *Client) notSent(ctx context.Context, err error) error {
	clean, ok := errors.AsType[*callError](err)
	if ok && clean.local {
		return clean
	}
	if text, ended := c.ended(ctx, "no connection to "+c.dialer.addr+" stood"); ended {
		return text
	}
	if ok {
		return clean
	}
	return because("the connection to "+c.dialer.addr+" broke before the request was written"+detail(err), err)
}

// noAnswer returns why a written request has no answer.
func (c *Client) noAnswer(ctx context.Context, err error) error {
	if text, ok := c.ended(ctx, "no answer came"); ok {
		return text
	}
	switch text := err.Error(); {
	case strings.Contains(text, "malformed HTTP"), strings.Contains(text, "malformed MIME"):
		return &callError{text: "what " + c.dialer.addr + " answered is not HTTP"}
	case strings.Contains(text, "response headers exceeded"):
		return &callError{text: "the answer's headers are too long"}
	}
	return because("the connection to "+c.dialer.addr+" broke after the request was written"+detail(err), err)
}

// certificateAlerts are TLS's alerts with which a server refuses a client's certificate, in the words of crypto/tls, which has no
// type for them.
var certificateAlerts = []string{
	"tls: bad certificate", "tls: unsupported certificate", "tls: revoked certificate", "tls: expired certificate",
	"tls: unknown certificate", "tls: unknown certificate authority", "tls: access denied", "tls: certificate required",
}

// refusesCertificate reports whether the server has ended the connection because of our certificate. In TLS 1.3 it says so when the
// handshake is over for us, and our request perhaps written. It has read no request: it can read none before it has accepted the
// certificate. Of any other connection, this is not true: see gatedConn.unproven.
func refusesCertificate(err error) bool {
	remote, is := errors.AsType[*net.OpError](err)
	return is && remote.Op == "remote error" && slices.Contains(certificateAlerts, remote.Err.Error())
}

// ended returns the error for a call ended by its own context, with what had not happened by then.
func (c *Client) ended(ctx context.Context, missing string) (error, bool) {
	switch cause := context.Cause(ctx); {
	case cause == nil, cause == errResend, cause == errNoGate:
		return nil, false
	case cause == errTimeout, errors.Is(cause, context.DeadlineExceeded):
		return &callError{text: fmt.Sprintf("%s within %s", missing, c.timeout), cause: context.DeadlineExceeded}, true
	}
	return &callError{text: "the call was broken off: " + missing, cause: context.Canceled}, true
}

// tooLong returns the error for an answer longer than what is read.
func (c *Client) tooLong() error {
	return fmt.Errorf("the answer is longer than %d KiB", c.most>>10)
}

// cutOff returns why an answer's body ended early.
func (c *Client) cutOff(err error) error {
	if errors.Is(err, errTimeout) || errors.Is(err, context.DeadlineExceeded) {
		return &callError{text: fmt.Sprintf("the answer did not end within %s", c.timeout), cause: context.DeadlineExceeded}
	}
	return &callError{text: "the answer was cut off" + detail(err)}
}

func (d *dialer) dialError(ctx context.Context, err error) error {
	if lookUp, ok := errors.AsType[*net.DNSError](err); ok {
		return lookUpError(ctx, lookUp)
	}
	to := d.addr
	if d.proxy != nil {
		to = "the proxy " + d.proxy.Addr
	}
	return d.connectError(ctx, "connecting to "+to+" failed", err)
}

func (d *dialer) handshakeError(ctx context.Context, err error) error {
	what := "the TLS handshake with " + d.addr + " failed"
	_, wrongName := errors.AsType[x509.HostnameError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, bad := errors.AsType[x509.CertificateInvalidError](err)
	_, notTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case wrongName:
		return &callError{text: what + ": its certificate is for another host"}
	case unknown:
		return &callError{text: what + ": its certificate is signed by an unknown authority (request.tls.ca names those to trust)"}
	case bad:
		return &callError{text: what + ": its certificate is not valid"}
	case notTLS:
		return &callError{text: what + ": it does not speak TLS"}
	}
	return d.connectError(ctx, what, err)
}

func (d *dialer) connectError(ctx context.Context, what string, err error) error {
	if errors.Is(context.Cause(ctx), errDialTimeout) || errors.Is(err, os.ErrDeadlineExceeded) {
		return &callError{text: fmt.Sprintf("%s: not done within %s", what, d.timeout), cause: context.DeadlineExceeded}
	}
	return because(what+detail(err), err)
}

// detail returns the part of an error that is safe to show, after a colon, or "".
func detail(err error) string {
	if err == nil {
		return ""
	}
	errno, isErrno := errors.AsType[syscall.Errno](err)
	remote, isRemote := errors.AsType[*net.OpError](err) // TLS's type for alerts from the peer
	switch {
	case isErrno:
		return ": " + errno.Error()
	case isRemote && remote.Op == "remote error":
		return ": the gateway says " + remote.Err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ": the gateway closed it"
	case errors.Is(err, errUnasked):
		return ": " + errUnasked.Error()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ": time-out"
	}
	return ""
}

// faults are kernel errors that concern only this machine: no descriptors, ports or memory left, refused by its
// own firewall, an interface that is down. An unreachable network or host is not among them, because a distant
// router may have reported it.
var faults = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL,
	syscall.EACCES, syscall.EPERM, syscall.ENETDOWN}

// Is reports whether the error is a fault of this machine.
func (e *callError) Is(target error) bool { return target == job.ErrLocal && e.local }

// because returns an error with this text, and with the kernel's part of err as its cause.
func because(text string, err error) *callError {
	e := &callError{text: text, local: Local(err)}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		e.cause = errno
	}
	return e
}

// Local reports whether a kernel error is a fault of this machine.
func Local(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains(faults, errno)
}

// lookUpError returns why a name was not found. An answer of a name server concerns the name; no answer at all
// concerns this machine.
func lookUpError(ctx context.Context, err *net.DNSError) *callError {
	what := "looking up " + err.Name + " failed: "
	if errno := starved(err); errno != 0 {
		return &callError{text: what + errno.Error(), cause: errno, local: true}
	}
	late := err.IsTimeout || context.Cause(ctx) == errTimeout
	switch {
	case err.IsNotFound:
		return &callError{text: what + "no such host"}
	case strings.Contains(err.Err, "misbehaving"), strings.Contains(err.Err, "lame referral"):
		return &callError{text: what + "the name server failed"}
	case late:
		return &callError{text: what + "the name server did not answer in time", local: true}
	}
	return &callError{text: what + "no name server answers", local: !errors.Is(err, context.Canceled)}
}

// starved returns the fault of this machine that prevented a name look-up; 0 if none did. The resolver reports
// the kernel's error only as text, or treats a file that it can't open as empty and finds no such host. So
// starved tries what the resolver could not open.
func starved(err *net.DNSError) syscall.Errno {
	for _, errno := range faults {
		if strings.HasSuffix(err.Err, ": "+errno.Error()) {
			return errno
		}
	}
	f, tried := os.Open(os.DevNull)
	if tried == nil {
		_ = f.Close()
		return 0
	}
	errno, _ := errors.AsType[syscall.Errno](tried)
	if !slices.Contains(faults, errno) {
		return 0
	}
	return errno
}
