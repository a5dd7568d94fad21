package client

import (
	"encoding/json"
	"maps"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"spillway/internal/httpapi"
	"spillway/internal/testkit"
)

// document is the description of a dispatcher's API.
func document(t *testing.T) []byte {
	t.Helper()
	answer := httptest.NewRecorder()
	httpapi.New(httpapi.Config{}).ServeHTTP(answer, httptest.NewRequest("GET", "http://127.0.0.1/openapi.json", nil))
	return answer.Body.Bytes()
}

// withoutDrawn removes what only "drawn" requests: how the command line draws a status.
func withoutDrawn(t *testing.T, text []byte) []byte {
	t.Helper()
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	at := func(path ...string) map[string]any {
		v := doc
		for _, name := range path {
			v = v.(map[string]any)[name]
		}
		return v.(map[string]any)
	}
	status := []string{"components", "schemas", "Status", "properties"}
	delete(at(status...), "drawn")
	delete(at(append(status, "gateways", "items", "properties")...), "drawn")
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The client has everything that the API describes: every schema with every field.
func TestTheClientHasEveryFieldOfTheAPI(t *testing.T) {
	t.Parallel()
	text := withoutDrawn(t, document(t))
	ours := map[string]any{"Taken": taken{}, "Problem": problem{}, "JobView": JobView{}, "Search": Search{}, "JobHits": JobHits{}, "Outcome": Outcome{}, "Acked": Acked{},
		"Batch": Batch{}, "Batches": Batches{}, "Status": Status{}, "CallHistory": CallHistory{}, "Answers": Answers{}, "Processes": Processes{}, "Examined": Examined{},
		"ListDeadLettersAnswer": DeadLetters{}, "GetDeadLetterAnswer": DeadLetterView{}, "CountDeadLettersAnswer": DeadLetterStats{}, "PreviewDeadLettersRequest": Clearing{},
		"PreviewDeadLettersAnswer": Preview{}, "ClearDeadLettersRequest": clearRequest{}, "ClearDeadLettersAnswer": Cleared{}, "PauseGatewayRequest": steer{}, "PauseGatewayAnswer": Steered{},
		"ResumeGatewayRequest": steer{}, "ResumeGatewayAnswer": Steered{}, "ListLimitsAnswer": Limits{}, "SetLimitsRequest": setLimits{}, "SetLimitsAnswer": GatewayLimits{},
		"ResetLimitsRequest": actor{}, "ResetLimitsAnswer": GatewayLimits{}, "ForgiveLimitsRequest": actor{}, "ForgiveLimitsAnswer": Forgiven{}, "ListBrakesAnswer": Brakes{}, "LiftBrakesRequest": liftBrakes{}, "LiftBrakesAnswer": GatewayBrakes{}, "PauseBatchRequest": batchAct{},
		"PauseBatchAnswer": BatchAct{}, "ResumeBatchRequest": batchAct{}, "ResumeBatchAnswer": BatchAct{}, "CancelBatchRequest": batchAct{}, "CancelBatchAnswer": BatchAct{},
		"RejectBatchRequest": batchAct{}, "RejectBatchAnswer": BatchAct{}, "ApproveBatchRequest": approveBatch{}, "ApproveBatchAnswer": BatchApproval{},
		"ListApprovalsAnswer": Approvals{}, "ApproveRequestRequest": decide{}, "ApproveRequestAnswer": Decided{}, "RejectRequestRequest": decide{}, "RejectRequestAnswer": Request{},
		"ParkJobRequest": batchAct{}, "ParkJobAnswer": ParkedJob{},
		"SetLaneRequest": setLane{}, "SetLaneAnswer": LaneSettings{}, "ResetLaneRequest": laneAct{}, "ResetLaneAnswer": LaneSettings{}, "PauseLaneRequest": laneAct{}, "PauseLaneAnswer": LaneSettings{},
		"ResumeLaneRequest": laneAct{}, "ResumeLaneAnswer": LaneSettings{}, "PauseRouteRequest": routeAct{}, "PauseRouteAnswer": SteeredRoute{}, "ResumeRouteRequest": routeAct{}, "ResumeRouteAnswer": SteeredRoute{},
		"ListLanesAnswer": Lanes{}, "GetLaneAnswer": LaneView{}, "VerifyTrailRequest": TrailQuery{}, "VerifyTrailAnswer": Trails{}}
	// The rest is only for the command line: what it draws beside these, shows during an act, or does next to the configuration.
	others := strings.Fields("NameGatewaysAnswer ListUnlistedAnswer WatchAnswer GetAllAnswersAnswer ListGatewaysAnswer AuditRequest AuditAnswer AuditLine FindJobAnswer ExportJobsLine ExportBatchLine PauseBatchLine ResumeBatchLine CancelBatchLine ApproveBatchLine RejectBatchLine ApproveRequestLine " +
		"ExportDeadLettersLine ClearDeadLettersLine ListHistoryLine ExportTrailLine ForgetJobsRequest ForgetJobsAnswer ForgetJobsLine RenameGatewayRequest RenameGatewayAnswer RenameGatewayLine ForgetGatewayRequest ForgetGatewayAnswer ForgetGatewayLine " +
		"HowToLogIn Whoami")
	var doc struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &doc); err != nil || len(doc.Components.Schemas) < len(ours) {
		t.Fatal(len(doc.Components.Schemas), err)
	}
	for name := range doc.Components.Schemas {
		if of, ok := ours[name]; name == "Job" {
			continue // what is posted may be null, and a Go value is not
		} else if ok {
			testkit.Described(t, text, name, of)
		} else if !slices.Contains(others, name) {
			t.Errorf("the API describes %s, and the client has no such type", name)
		}
	}
	var job struct {
		Properties map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(doc.Components.Schemas["Job"], &job); err != nil {
		t.Fatal(err)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Job]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if job.Properties[name] == nil {
			t.Errorf("Job.%s is not described", name)
		}
		delete(job.Properties, name)
	}
	if len(job.Properties) > 0 {
		t.Errorf("the API describes %v of a job, and the client has no such fields", slices.Sorted(maps.Keys(job.Properties)))
	}
	testkit.Listed(t, text, "JobView", "state", States())
	testkit.Listed(t, text, "JobView", "reason", Reasons())
	testkit.Listed(t, text, "Taken", "result", []Admittance{Enqueued, ParkedNow, Duplicate})
	testkit.Listed(t, text, "Problem", "code", Codes())
}

// docs/client.md shows the code that the examples run.
func TestThePageShowsTheExamples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, b := range blocks {
		if !strings.Contains(string(examples), "\t"+strings.ReplaceAll(strings.TrimRight(b[1], "\n"), "\n", "\n\t")) {
			t.Errorf("docs/client.md shows what no example runs:\n%s", b[1])
		}
	}
	if len(blocks) < 4 {
		t.Errorf("%d examples", len(blocks))
	}
}
