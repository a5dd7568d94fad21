package queue

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"spillway/internal/redisdb"
)

// taskType marks Spillway's tasks.
const taskType = "spillway:job"

// The worker decides every terminal outcome, so asynq's own limits are set out of reach. A task that hits one
// would be archived, and asynq trims its archive.
const outOfReach = 1 << 30

var farDeadline = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Encoder encodes asynq's message for a task without sending it: the script that accepts the job enqueues it
// together with the job's record. An Encoder is safe for concurrent use.
type Encoder struct {
	gateway string
	client  *asynq.Client
	form    func() (form, error) // made on first use
}

// form is a message without its id. It is the same for all tasks of a gateway.
type form struct{ before, behind []byte }

// NewEncoder returns an encoder for a gateway's queue.
func NewEncoder(gateway string) *Encoder {
	e := &Encoder{gateway: gateway, client: asynq.NewClientFromRedisClient(capture{})}
	e.form = sync.OnceValues(func() (form, error) { return e.learn() })
	return e
}

type captured struct{ msg []byte }

type captureKey struct{}

var errEncode = errors.New("asynq did not encode the task the way this version expects")

// Encode returns the message of the task with this id. The task contains nothing else, because the job is in
// its record. Only one task of the gateway is encoded by asynq. The others are copies with their own id, which
// takes a twentieth of the time.
func (e *Encoder) Encode(taskID string) ([]byte, error) {
	f, err := e.form()
	if err != nil {
		return nil, err
	}
	if taskID == "" {
		return nil, errors.New("a task needs an id")
	}
	msg := make([]byte, 0, len(f.before)+len(f.behind)+len(taskID)+4)
	msg = append(msg, f.before...)
	msg = protowire.AppendTag(msg, idField, protowire.BytesType)
	msg = protowire.AppendString(msg, taskID)
	return append(msg, f.behind...), nil
}

// learn makes asynq encode a task, and cuts its id out.
func (e *Encoder) learn() (form, error) {
	const id = "learn~1"
	msg, err := e.ask(id)
	if err != nil {
		return form{}, err
	}
	field := protowire.AppendString(protowire.AppendTag(nil, idField, protowire.BytesType), id)
	before, behind, found := bytes.Cut(msg, field)
	if m, ok := parseMessage(msg); !found || !ok || m.id != id {
		return form{}, errEncode
	}
	return form{before, behind}, nil
}

// ask makes asynq encode a task.
func (e *Encoder) ask(taskID string) ([]byte, error) {
	var c captured
	ctx := context.WithValue(context.Background(), captureKey{}, &c)
	_, err := e.client.EnqueueContext(ctx, asynq.NewTask(taskType, nil), asynq.Queue(e.gateway), asynq.TaskID(taskID),
		asynq.MaxRetry(outOfReach), asynq.Deadline(farDeadline))
	if err != nil {
		return nil, err
	}
	if c.msg == nil {
		return nil, errEncode
	}
	return c.msg, nil
}

// capture takes the place of asynq's Redis client and keeps what would be sent. The first argument of asynq's
// enqueue script is the encoded message.
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

// Announce adds a gateway's queue to the set from which asynq's own tools list queues.
func Announce(ctx context.Context, c redis.UniversalClient, gateway string) error {
	return c.SAdd(ctx, redisdb.AsynqQueues, gateway).Err()
}

// The fields of asynq's TaskMessage (internal/proto/asynq.proto of v0.26.0) that are read or written here.
const (
	payloadField = 2
	idField      = 3
	queueField   = 4
)

// message is the part of a task's encoded message that is read.
type message struct {
	id      string
	payload []byte
}

// parseMessage decodes a message. ok is false if it is invalid or has no id.
func parseMessage(b []byte) (m message, ok bool) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return message{}, false
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return message{}, false
		}
		value := b[n : n+size]
		b = b[n+size:]
		if kind != protowire.BytesType {
			continue
		}
		switch number {
		case payloadField:
			m.payload, _ = protowire.ConsumeBytes(value)
		case idField:
			text, _ := protowire.ConsumeString(value)
			m.id = text
		}
	}
	return m, m.id != ""
}

// Moved returns a task's message with the queue's name replaced. An invalid message is returned unchanged.
func Moved(msg []byte, queue string) []byte { return with(msg, queueField, queue) }

// with returns a task's message with a text field replaced. An invalid message is returned unchanged.
func with(msg []byte, field protowire.Number, text string) []byte {
	made := make([]byte, 0, len(msg)+len(text)+2)
	for rest := msg; len(rest) > 0; {
		number, kind, head := protowire.ConsumeTag(rest)
		if head < 0 {
			return msg
		}
		size := protowire.ConsumeFieldValue(number, kind, rest[head:])
		if size < 0 {
			return msg
		}
		if number == field {
			made = protowire.AppendString(protowire.AppendTag(made, field, protowire.BytesType), text)
		} else {
			made = append(made, rest[:head+size]...)
		}
		rest = rest[head+size:]
	}
	return made
}
