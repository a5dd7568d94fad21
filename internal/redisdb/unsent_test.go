package redisdb

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/testkit"
)

// A busy server refuses a new connection its name. A pipeline that was to use the connection fails, and so does each of its
// commands: none of them may look as if it had an empty answer.
func TestNoCommandOfAPipelineThatWasNotSentLooksAnswered(t *testing.T) {
	t.Parallel()
	server := testkit.Server(t, "--lua-time-limit", "10")
	control := server.Client()
	ways := map[string]func(redis.UniversalClient) ([]redis.Cmder, error){
		"pipeline":    func(c redis.UniversalClient) ([]redis.Cmder, error) { return c.Pipelined(t.Context(), three(t)) },
		"transaction": func(c redis.UniversalClient) ([]redis.Cmder, error) { return c.TxPipelined(t.Context(), three(t)) },
	}
	clients := map[string]redis.UniversalClient{}
	for kind := range ways { // opened while there is an answer
		clients[kind] = open(t, server.URL(), Options{Name: "late"}).Client
	}
	if err := control.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Client().Eval(t.Context(), "while true do end", nil).Err() }()
	testkit.Eventually(t, 20*time.Second, "the server to be busy", func() bool {
		return redis.HasErrorPrefix(control.Get(t.Context(), "a").Err(), "BUSY")
	})
	defer control.ScriptKill(t.Context())
	for kind, pipelined := range ways {
		cmds, err := pipelined(clients[kind])
		if err == nil || len(cmds) != 3 {
			t.Errorf("%s: %d commands, %v", kind, len(cmds), err)
		}
		for _, cmd := range cmds {
			if cmd.Err() == nil || !strings.Contains(cmd.Err().Error(), "BUSY") {
				t.Errorf("%s: %s has the error %v, want that of the pipeline: %v", kind, cmd.Name(), cmd.Err(), err)
			}
		}
	}
}

func three(t *testing.T) func(redis.Pipeliner) error {
	return func(p redis.Pipeliner) error {
		p.Get(t.Context(), "a")
		p.Eval(t.Context(), "return 1", nil)
		p.LPop(t.Context(), "b")
		return nil
	}
}
