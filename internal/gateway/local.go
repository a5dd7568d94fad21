package gateway

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"spillway/internal/job"
)

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
