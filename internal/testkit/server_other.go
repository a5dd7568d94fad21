//go:build !unix

package testkit

// Pause fails the test: a server is paused with SIGSTOP, which only Unix has.
func (s *RedisServer) Pause() {
	s.t.Fatal("redis-server is paused with SIGSTOP, and this system has none")
}

// Continue does nothing: no server is paused here.
func (s *RedisServer) Continue() {}
