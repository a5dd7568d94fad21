package record

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

func TestNoTwoFieldsHaveOneName(t *testing.T) {
	t.Parallel()
	if len(names) != len(layout) || len(shorts) != len(layout) {
		t.Errorf("%d fields have %d names, and %d in Redis", len(layout), len(shorts), len(names))
	}
}

// A program whose script names a field that records don't have does not start.
func TestAFieldThatNobodyKnowsIsFoundAtStart(t *testing.T) {
	t.Parallel()
	if got := Expand("job.@state == '@reason' {@@done}"); got != "job.s == 'r' {'am', 'r', 'pa'}" {
		t.Errorf("expanded to %s", got)
	}
	for _, script := range []string{"return job.@stat", "local ALL = {@@everything}"} {
		said := func() (said any) {
			defer func() { said = recover() }()
			return Expand(script)
		}()
		if !strings.Contains(fmt.Sprint(said), "layout.go has all") {
			t.Errorf("%s: %v", script, said)
		}
	}
}

// Scripts name fields by their readable names.
func TestScriptsUseTheReadableNames(t *testing.T) {
	t.Parallel()
	var all []string
	for short := range names {
		all = append(all, short)
	}
	raw := regexp.MustCompile(`(?m)^[^\n]*?(?:'(?:` + strings.Join(all, "|") + `)'|\bjob\.(?:` + strings.Join(all, "|") + `)\b)[^\n]*`)
	comment := regexp.MustCompile(`--[^\n]*`)
	looked := 0
	for _, folder := range []string{"record", "audit", "deadletter", "ledger", "queue"} {
		files, err := filepath.Glob("../" + folder + "/*.lua")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			looked++
			if line := raw.FindString(comment.ReplaceAllString(string(text), "")); line != "" {
				t.Errorf("%s writes a short name of layout.go: %s", file, line)
			}
		}
	}
	if looked < 30 {
		t.Errorf("%d scripts were looked at", looked)
	}
}

// A record that another version has written is read: the short names stay as they are.
func TestARecordIsReadByItsShortNames(t *testing.T) {
	t.Parallel()
	at := func(us int64) time.Time { return time.UnixMicro(us).UTC() }
	r := Parse("stripe", "charge", Named(map[string]string{"s": "parked", "g": "3", "k": "2", "n": "4", "y": "1", "t": "10", "c": "5", "b": "november", "at": "11", "x": "12", "f": "13",
		"od": "14", "fin": "15", "due": "16", "am": "1", "r": "refused", "e": "declined", "pa": "17", "st": "402", "h": "18 19 402 refused\n", "ca": "6", "ed": "20",
		"ref": "ch_1", "m": "1050 EUR", "by": "not_done 21 7", "lq": "3", "la": "22", "lg": "24", "ls": "404", "ce": "23", "ag": "1", "pn": "2", "p1": `{"a":`, "p2": "1}", "unheard_of": "x"}))
	want := job.Record{Job: job.Job{ID: "charge", Gateway: "stripe", Payload: []byte(`{"a":1}`), Cost: 5, At: at(11), Expires: at(12), Batch: "november"}, State: job.Parked, Generation: 3,
		KeyGeneration: 2, Attempts: 6, Spent: 4, Replays: 1, Accepted: at(10), Finished: at(15), Due: at(16), Deadline: at(14), FirstCall: at(13), Reason: job.Refused,
		Error: "declined", ParkedAt: at(17), Edited: at(20), Status: 402, Money: "1050 EUR", Reference: "ch_1", Unsure: true, Settled: job.Settlement{At: at(21), Act: "7"},
		Looks: 3, NextLook: at(22), LookFailing: at(24), LastSeen: "404", CallEnded: at(23), Taken: true, History: []job.Call{{At: at(18), Took: 19 * time.Microsecond, Status: 402, Verdict: "refused"}}}
	if got, expected := fmt.Sprintf("%+v", r), fmt.Sprintf("%+v", want); got != expected {
		t.Errorf("read as\n%s\nwant\n%s", got, expected)
	}
	if whole, err := PayloadOf("stripe", "charge", Named(map[string]string{"p": "{}"})); string(whole) != "{}" || err != nil {
		t.Errorf("a payload in one piece is read as %s, %v", whole, err)
	}
}

// finish in record.lua ends every job, whatever the reason.
func TestAJobIsOverInOneWay(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.lua")
	if err != nil {
		t.Fatal(err)
	}
	forgets := 0
	for _, file := range files {
		text := lua(strings.TrimSuffix(file, ".lua"))
		forgets += strings.Count(text, " forget(record, ")
		if line := regexp.MustCompile(`(?m)^.*\bbecome(?:_of)?\(.*'(?:done|discarded)'.*$`).FindString(text); line != "" {
			t.Errorf("%s ends a job by itself: %s", file, line)
		}
	}
	if forgets != 2 { // its definition, and finish
		t.Errorf("forget stands %d times in the scripts", forgets)
	}
}
