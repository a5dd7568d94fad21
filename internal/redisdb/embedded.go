package redisdb

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// embed starts a Redis within the process, connected by pipes, so that it needs no port that others on the machine
// could use.
func embed(at *target, opt Options) *DB {
	server := miniredis.NewMiniRedis()
	o := universal(at, opt)
	o.Dialer = func(context.Context, string, string) (net.Conn, error) {
		conn, err := server.Dial()
		if err != nil {
			return nil, err
		}
		return newPump(conn), nil
	}
	client := redis.NewClient(o.Simple())
	client.AddHook(marking{})
	stop := make(chan struct{})
	aged := make(chan struct{})
	go func() {
		defer close(aged)
		age(server, stop)
	}()
	return &DB{Client: client, Embedded: true, at: at, close: sync.OnceValue(func() error {
		close(stop)
		<-aged
		err := client.Close()
		server.Close()
		return err
	})}
}

// ageEvery is how late a key of the embedded Redis may expire.
const ageEvery = 250 * time.Millisecond

// age expires keys as time passes, which miniredis leaves to its user. Each step visits all keys and blocks other
// commands. With many keys, steps become rarer, so that they never take more than one fiftieth of the time.
func age(server *miniredis.Miniredis, stop <-chan struct{}) {
	last := time.Now()
	timer := time.NewTimer(ageEvery)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		now := time.Now()
		server.FastForward(now.Sub(last))
		last = now
		timer.Reset(max(ageEvery, 50*time.Since(now)))
	}
}
