package queue

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// taskType marks the tasks that are ours.
const taskType = "spillway:job"

// Every terminal outcome is decided by the worker, so asynq's own limits are set out of reach: a task that ran into
// one of them would be archived, and asynq trims its archive.
const outOfReach = 1 << 30

var farDeadline = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Encoder makes asynq's message for a task, without sending it: the script that accepts the job puts it into the queue
// together with the job's record. Safe for concurrent use.
type Encoder struct {
	gateway string
	client  *asynq.Client
}

// NewEncoder returns an encoder for a gateway's queue.
func NewEncoder(gateway string) *Encoder {
	return &Encoder{gateway: gateway, client: asynq.NewClientFromRedisClient(capture{})}
}

type captured struct{ msg []byte }

type captureKey struct{}

// Encode returns the message of the task with this id. The task carries nothing else: the job is in its record.
func (e *Encoder) Encode(taskID string) ([]byte, error) {
	var c captured
	ctx := context.WithValue(context.Background(), captureKey{}, &c)
	_, err := e.client.EnqueueContext(ctx, asynq.NewTask(taskType, nil), asynq.Queue(e.gateway), asynq.TaskID(taskID),
		asynq.MaxRetry(outOfReach), asynq.Deadline(farDeadline))
	if err != nil {
		return nil, err
	}
	if c.msg == nil {
		return nil, errors.New("asynq did not encode the task the way this version expects")
	}
	return c.msg, nil
}

// capture stands where asynq's client expects Redis and keeps what it would have sent: of asynq's enqueue script the
// first argument is the encoded message.
type capture struct{ redis.UniversalClient }

func (capture) SAdd(ctx context.Context, _ string, _ ...any) *redis.IntCmd {
	return redis.NewIntCmd(ctx)
}

func (capture) EvalSha(ctx context.Context, _ string, _ []string, args ...any) *redis.Cmd {
	if c, ok := ctx.Value(captureKey{}).(*captured); ok && len(args) > 0 {
		c.msg, _ = args[0].([]byte)
	}
	cmd := redis.NewCmd(ctx)
	cmd.SetVal(int64(1))
	return cmd
}

// Announce makes a gateway's queue known to asynq's own tools, which list queues from a set of their own.
func Announce(ctx context.Context, c redis.UniversalClient, gateway string) error {
	return c.SAdd(ctx, "asynq:queues", gateway).Err()
}
