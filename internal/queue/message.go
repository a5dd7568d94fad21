package queue

import "google.golang.org/protobuf/encoding/protowire"

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
