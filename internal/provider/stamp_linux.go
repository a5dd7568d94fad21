package provider

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// maxStampAge is the greatest believable age of a kernel's stamp. If it is older, the clock was set meanwhile.
const maxStampAge = time.Minute

// stampFrom makes the kernel stamp every connection of a listener from the first packet on: connections inherit
// the option. Set on a connection itself, it would be too late for a request that arrived before the connection was accepted, which would be stamped
// when it is read.
func stampFrom(ln net.Listener) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = askForStamps(fd) }) // without it, each connection asks
	}
}

func askForStamps(fd uintptr) error {
	return syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TIMESTAMPNS, 1)
}

// stampedReader returns a way to read c that tells when the kernel received what was read.
func stampedReader(c net.Conn) func(p []byte) (int, time.Time, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return plainReader(c)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return plainReader(c)
	}
	set := raw.Control(func(fd uintptr) { err = askForStamps(fd) })
	if set != nil || err != nil {
		return plainReader(c)
	}
	return func(p []byte) (int, time.Time, error) { return receive(raw, p) }
}

// receive is one recvmsg with the stamp of the last packet read.
func receive(raw syscall.RawConn, p []byte) (n int, at time.Time, err error) {
	if len(p) == 0 {
		return 0, time.Time{}, nil
	}
	control := make([]byte, 64)
	length := 0
	waited := raw.Read(func(fd uintptr) bool {
		for {
			n, length, _, _, err = syscall.Recvmsg(int(fd), p, control, 0)
			if err != syscall.EINTR {
				return err != syscall.EAGAIN
			}
		}
	})
	at = kernelTime(control[:max(length, 0)], time.Now())
	switch {
	case waited != nil:
		return 0, at, waited // closed, or its deadline passed
	case err != nil:
		return 0, at, os.NewSyscallError("recvmsg", err)
	case n == 0:
		return 0, at, io.EOF
	}
	return n, at, nil
}

// kernelTime finds the stamp in the control messages and puts it on Go's clock; now where there is none.
func kernelTime(control []byte, now time.Time) time.Time {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return now
	}
	for _, m := range messages {
		if m.Header.Level != syscall.SOL_SOCKET || m.Header.Type != syscall.SCM_TIMESTAMPNS || len(m.Data) < 16 {
			continue
		}
		seconds := binary.NativeEndian.Uint64(m.Data)
		nanos := binary.NativeEndian.Uint64(m.Data[8:])
		age := now.Sub(time.Unix(int64(seconds), int64(nanos)))
		if age >= 0 && age < maxStampAge {
			return now.Add(-age)
		}
	}
	return now
}
