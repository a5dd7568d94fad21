package main

import (
	"cmp"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"spillway/internal/desk"
	"spillway/internal/feed"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/remote"
	"spillway/internal/testkit"
)

func theDescription() []byte {
	answer := httptest.NewRecorder()
	httpapi.New(httpapi.Config{}).ServeHTTP(answer, httptest.NewRequest("GET", "http://127.0.0.1/openapi.json", nil))
	return answer.Body.Bytes()
}

// parsed is the description. It takes a second to parse with the race detector, so all tests share it.
var parsed = sync.OnceValues(func() (*openapi3.T, error) { return openapi3.NewLoader().LoadFromData(theDescription()) })

// The API answers what "job" and "status" print, and /openapi.json describes each field. The payload is not among them.
func TestTheAnswersOfTheAPIAreDescribed(t *testing.T) {
	t.Parallel()
	text := theDescription()
	testkit.Described(t, text, "JobView", desk.Job{})
	testkit.Described(t, text, "Outcome", feed.Outcome{})
	testkit.Described(t, text, "Acked", feed.Acked{})
	testkit.Listed(t, text, "JobView", "reason", job.Reasons())
}

// The description of each operation has its name, its parameters, and each field of its request, lines and answer.
func TestTheOperationsOfTheTableAreDescribed(t *testing.T) {
	t.Parallel()
	text := theDescription()
	doc, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range remote.Table() {
		about := o.Described()
		item := doc.Paths.Value(about.Path)
		if item == nil || item.GetOperation(about.Method) == nil {
			t.Errorf("%s %s is not described", about.Method, about.Path)
			continue
		}
		op := item.GetOperation(about.Method)
		if op.OperationID != about.Name {
			t.Errorf("%s %s is described as %s, and is %s", about.Method, about.Path, op.OperationID, about.Name)
		}
		if op.Extensions["x-role"] != about.Need.String() {
			t.Errorf("%s needs the role %s, and %v is described", about.Name, about.Need, op.Extensions["x-role"])
		}
		if about.Elsewhere {
			continue
		}
		request, line, answer := o.Types()
		if about.Method == "GET" {
			sameParameters(t, about, op, remote.Parameters(request))
		} else {
			described(t, text, cmp.Or(map[string]string{"searchJobs": "Search"}[about.Name], about.Name+"Request"), request)
		}
		if about.Kind != remote.Document {
			described(t, text, about.Name+"Line", line)
		}
		name := map[string]string{"getStatus": "Status", "getBatch": "Batch", "getDoctor": "Examined", "listBatches": "Batches", "countCalls": "CallHistory",
			"countAnswers": "Answers", "listProcesses": "Processes", "searchJobs": "JobHits"}[about.Name] // from before the table
		if name == "" {
			name = about.Name + "Answer"
		}
		described(t, text, name, answer)
	}
}

// described compares a schema with a type. None has no schema.
func described(t *testing.T, document []byte, name string, of any) {
	t.Helper()
	if _, none := of.(remote.None); !none {
		testkit.Described(t, document, strings.ToUpper(name[:1])+name[1:], of)
	}
}

func sameParameters(t *testing.T, about remote.About, op *openapi3.Operation, want []string) {
	t.Helper()
	var got []string
	for _, p := range op.Parameters {
		if p.Value.In == "query" {
			got = append(got, p.Value.Name)
		}
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("%s has the parameters %v, and %v are described", about.Path, want, got)
	}
}
