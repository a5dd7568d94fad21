package queue

import (
	"bytes"
	"strings"
	"testing"
)

// asynq encodes one task of a gateway, and the others are derived from it. Each must be what asynq itself would have made.
func TestEveryMessageIsWhatAsynqWouldMake(t *testing.T) {
	t.Parallel()
	for _, gateway := range []string{"stripe", "learn", strings.Repeat("g", 200)} {
		e := NewEncoder(gateway)
		for _, id := range []string{"a~1", "learn~1", "inv-0001~12", strings.Repeat("x", 125) + "~1", strings.Repeat("x", 126) + "~1", strings.Repeat("x", 200) + "~99"} {
			want, err := e.ask(id)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Encode(id)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("gateway %s, task %s: %q, %v; asynq makes %q", gateway, id, got, err, want)
			}
		}
		if _, err := e.Encode(""); err == nil {
			t.Error("a task without an id was encoded")
		}
	}
}
