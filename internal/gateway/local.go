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

// faults are the kernel's errors that speak of this machine alone: descriptors, ports and memory that are used up, a firewall of its own that
// refuses, an interface that is down. A network or host that is unreachable is none of them: a router far away may have said so.
var faults = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL,
	syscall.EACCES, syscall.EPERM, syscall.ENETDOWN}

// Is says whether the error is a fault of this machine.
func (e *callError) Is(target error) bool { return target == job.ErrLocal && e.local }

// because returns the sentence of an error, with the kernel's part of it as its cause.
func because(text string, err error) *callError {
	e := &callError{text: text, local: Local(err)}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		e.cause = errno
	}
	return e
}

// Local says whether an error of the kernel's is a fault of this machine.
func Local(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains(faults, errno)
}

// lookUpError says why a name was not found. What a name server has answered is about the name; that none has answered is about this machine.
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

// starved returns which fault of this machine kept a name from being looked up; 0 if none did. The resolver hands on the kernel's error as
// text, or takes what it can't open for empty and finds no such host; so what it could not open is tried here.
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
