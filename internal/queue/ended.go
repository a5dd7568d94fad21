package queue

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ended holds the tasks that a script has removed from the queue in the same step in which it recorded the
// result of the attempt. When the handler has returned, asynq acknowledges each of them and is answered at
// once, which saves a round trip for each job. A task that asynq does not acknowledge, because its lease has
// expired, is dropped after a while. If asynq's script is not recognised, it finds no such task and logs that.
type ended struct {
	mu    sync.Mutex
	tasks map[string]time.Time // when it was added, by task id
	sweep time.Time            // when old tasks were last dropped
}

// endedStays is longer than the time from the end of an attempt to the end of its handler.
const endedStays = time.Minute

// add adds a task.
func (e *ended) add(taskID string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tasks == nil {
		e.tasks = make(map[string]time.Time)
	}
	e.tasks[taskID] = now
	if now.Sub(e.sweep) < endedStays {
		return
	}
	e.sweep = now
	for id, since := range e.tasks {
		if now.Sub(since) > endedStays {
			delete(e.tasks, id)
		}
	}
}

// take removes a task and reports whether it was there. taskID is an argument of asynq's script.
func (e *ended) take(taskID any) bool {
	id, _ := taskID.(string)
	e.mu.Lock()
	defer e.mu.Unlock()
	_, noted := e.tasks[id]
	delete(e.tasks, id)
	return noted
}

// did returns the reply of an asynq script that succeeded.
func did(ctx context.Context) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal("OK")
	return cmd
}

// Ended tells the server that a task in its hands was removed from the queue when its attempt ended.
func (s *Server) Ended(taskID string) { s.src.ended.add(taskID, time.Now()) }
