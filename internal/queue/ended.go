package queue

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ended is the tasks that a script of ours has taken out of asynq's hands, in the same step as it wrote down what became of the job.
// asynq comes for each of them as soon as its handler has returned, and is told that it is done: a round trip less for each job. What it
// does not come for (its lease has run out) is forgotten after a while. If its script is not recognised, it finds no such task, and logs that.
type ended struct {
	mu    sync.Mutex
	tasks map[string]time.Time // when, by the task's id
	sweep time.Time            // when what is old was forgotten last
}

// endedStays is longer than it takes from the end of a job's attempt to that of its handler.
const endedStays = time.Minute

// add notes a task.
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

// take forgets a task and says whether it was noted; taskID is an argument of asynq's.
func (e *ended) take(taskID any) bool {
	id, _ := taskID.(string)
	e.mu.Lock()
	defer e.mu.Unlock()
	_, noted := e.tasks[id]
	delete(e.tasks, id)
	return noted
}

// did is the answer of asynq's script that has done its work.
func did(ctx context.Context) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal("OK")
	return cmd
}

// Ended tells the server that a task, which it is handling, was taken out of the queue together with its attempt.
func (s *Server) Ended(taskID string) { s.src.ended.add(taskID, time.Now()) }
