//go:build unix

package testkit

import "syscall"

// Pause stops the server (SIGSTOP): connections stay open, and nothing answers.
func (s *RedisServer) Pause() { s.signal(syscall.SIGSTOP) }

// Continue ends a Pause (SIGCONT).
func (s *RedisServer) Continue() { s.signal(syscall.SIGCONT) }
