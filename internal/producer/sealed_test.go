package producer

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// opener knows one sealed payload of one job.
func opener(plain string) func(gateway, id string, sealed []byte) ([]byte, error) {
	return func(gateway, id string, sealed []byte) ([]byte, error) {
		if gateway != "stripe" || id != "a" || string(sealed) != "box" {
			return nil, errors.New("it belongs to another job")
		}
		return []byte(plain), nil
	}
}

func TestASealedLineIsReadForItsJob(t *testing.T) {
	t.Parallel()
	box := base64.StdEncoding.EncodeToString([]byte("box"))
	for _, c := range []struct{ name, line, plain, want, err string }{
		{"whole", `{"sealed":"` + box + `","id":"a","gateway":"stripe","batch":"b"}`, `{ "n": 1 }`, `{"n":1}`, ""},
		{"of another job", `{"id":"b","gateway":"stripe","sealed":"` + box + `"}`, `{}`, "", "sealed: it belongs to another job"},
		{"of another gateway", `{"id":"a","gateway":"adyen","sealed":"` + box + `"}`, `{}`, "", "sealed: it belongs to another job"},
		{"twice", `{"id":"a","gateway":"stripe","payload":{},"sealed":"` + box + `"}`, `{}`, "", errTwoSources.Error()},
		{"no text", `{"id":"a","gateway":"stripe","sealed":7}`, `{}`, "", errSealedText.Error()},
		{"null", `{"id":"a","gateway":"stripe","sealed":null}`, `{}`, "", errSealedText.Error()},
		{"no base64", `{"id":"a","gateway":"stripe","sealed":"!"}`, `{}`, "", errSealedText.Error()},
		{"empty", `{"id":"a","gateway":"stripe","sealed":""}`, `{}`, "", errSealedText.Error()},
		{"no object", `{"id":"a","gateway":"stripe","sealed":"` + box + `"}`, `CANARY`, "", "sealed: not a JSON object"},
	} {
		job, err := One([]byte(c.line), Options{Open: opener(c.plain)})
		if string(job.Payload) != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%s: payload %s, error %v", c.name, job.Payload, err)
		}
	}
	if _, err := One([]byte(`{"id":"a","gateway":"stripe","sealed":"`+box+`"}`), Options{}); !errors.Is(err, errNoKeys) {
		t.Errorf("without keys: %v", err)
	}
}

// What a line says is not taken over by the next one.
func TestALineBehindASealedOneIsItsOwn(t *testing.T) {
	t.Parallel()
	box := base64.StdEncoding.EncodeToString([]byte("box"))
	text := `{"sealed":"` + box + `","id":"a","gateway":7}
{"id":"b","gateway":"stripe"}
{"id":"a","gateway":"stripe","sealed":"` + box + `"}
{"id":"c","gateway":"stripe","payload":{"n":2}}
`
	r, err := New(strings.NewReader(text), Options{Format: NDJSON, Open: opener(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 4 {
		line, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(line.Job.Payload))
	}
	if strings.Join(got, " ") != ` {} {"n":1} {"n":2}` {
		t.Errorf("payloads %q", got)
	}
}
