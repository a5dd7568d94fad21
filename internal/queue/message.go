package queue

import "google.golang.org/protobuf/encoding/protowire"

// The fields of asynq's TaskMessage (internal/proto/asynq.proto of v0.26.0) that are read here, or written.
const (
	payloadField = 2
	idField      = 3
	queueField   = 4
)

// message is what is read of a task's encoded message.
type message struct {
	id      string
	payload []byte
}

// parseMessage reads an encoded message; ok is false if it is none, or has no id.
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

// Moved returns a task's message with another queue's name in it; what is no message stays as it is.
func Moved(msg []byte, queue string) []byte { return with(msg, queueField, queue) }

// with returns a task's message with another text in a field; what is no message stays as it is.
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
