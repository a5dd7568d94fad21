package desk

import (
	"bytes"
	"encoding/json"
	"testing"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/producer"
)

// An export of a gateway with a map can be enqueued again, and is not mapped a second time.
func TestAnExportIsNotMappedAgain(t *testing.T) {
	t.Parallel()
	g := &Gateway{Gateway: config.Gateway{Name: "g", Map: &job.Map{Fields: []job.MapField{{To: "amount", From: "Betrag"}}}}}
	record := job.Record{Job: job.Job{ID: "a", Gateway: "g", Payload: []byte(`{"amount":5,"x":1}`)}}
	line, err := g.Export(record, true)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(line)
	r, err := producer.New(bytes.NewReader(text), producer.Options{Map: func(string) *job.Map { return g.Map }})
	if err != nil {
		t.Fatal(err)
	}
	if l, err := r.Next(); err != nil || l.Err != nil || string(l.Job.Payload) != `{"amount":5,"x":1}` {
		t.Errorf("%s becomes %s (%v, %v)", text, l.Job.Payload, l.Err, err)
	}
}
