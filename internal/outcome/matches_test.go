package outcome

import (
	"errors"
	"strings"
	"testing"

	"spillway/internal/job"
)

// An answer about another payment does not count for this job, whatever its status.
func TestAnAnswerAboutAnotherPayment(t *testing.T) {
	t.Parallel()
	table := profile(t, "", job.Rule{Status: 202, Then: job.VerdictAccepted}, job.Rule{Status: 422, Then: job.VerdictNewKey}).
		Matching(map[string]string{"ref": "order.ref", "amount.value": "amount", "currency": "currency", "job": job.OwnID}).Referring("id")
	const payload = `{"order":{"ref":"A-1"},"amount":"10.50","currency":"EUR","note":null}`
	for name, tc := range map[string]struct {
		status  int
		body    string
		differs string
	}{
		"all of it":                  {200, `{"id":"p1","ref":"A-1","amount":{"value":10.5},"currency":"eur","job":"j1"}`, ""},
		"a number of its own form":   {200, `{"id":"p1","amount":{"value":1.05e1}}`, ""},
		"what it lacks":              {200, `{"id":"p1"}`, ""},
		"what it has null and empty": {200, `{"id":"p1","ref":null,"job":""}`, ""},
		"a list is no value":         {200, `{"id":"p1","ref":["B"]}`, ""},
		"no body":                    {200, "", ""},
		"another reference":          {200, `{"id":"p9","ref":"STRANGE"}`, "ref"},
		"another job":                {201, `{"id":"p9","ref":"A-1","job":"STRANGE"}`, "job"},
		"another amount":             {200, `{"id":"p9","ref":"A-1","amount":{"value":10.500000000000000001}}`, "amount.value"},
		"another currency":           {200, `{"id":"p9","currency":"USD"}`, "currency"},
		"accepted":                   {202, `{"id":"p9","ref":"STRANGE"}`, "ref"},
		"another key":                {422, `{"id":"p9","ref":"STRANGE"}`, "ref"},
		"a refusal":                  {402, `{"id":"p9","ref":"STRANGE"}`, ""},
	} {
		for _, in := range []Input{{}, {Again: true}, {Again: true, Unsure: true}, {Lapse: true}} {
			in.KeySent, in.KeyLives, in.Result = true, true, came(tc.status, tc.body)
			in.Job = job.Job{ID: "j1", Payload: []byte(payload)}
			j := table.Judge(in)
			if tc.status == 422 && (in.Unsure || in.Lapse) {
				if j.Verdict != job.VerdictUnknown {
					t.Errorf("%s, %+v: %+v", name, in, j)
				}
				continue
			}
			if !strings.Contains(j.Error, "another payment's, as its "+tc.differs+" differs") != (tc.differs == "") {
				t.Errorf("%s: %+v", name, j)
			}
			if tc.differs != "" && (!unknownAndFree(j) || !j.Foreign || j.Reference != "" || strings.Contains(j.Error, "STRANGE")) {
				t.Errorf("%s: %+v", name, j)
			}
			if tc.differs == "" && j.Foreign {
				t.Errorf("%s is taken for another's: %+v", name, j)
			}
		}
	}
}

// A truncated answer can't be compared, and is asked for again.
func TestACutOffAnswerCantBeCompared(t *testing.T) {
	t.Parallel()
	rule := job.Rule{Status: 201, Header: map[string]string{"Paid": "yes"}, Then: job.VerdictDone}
	in := Input{KeySent: true, KeyLives: true, Result: came(201, `{"ref":"B`, "Paid", "yes"), Job: job.Job{ID: "j1", Payload: []byte(`{"ref":"A"}`)}}
	in.Result.Err = errors.New("the answer was cut off")
	if j := profile(t, "", rule).Matching(map[string]string{"ref": "ref"}).Judge(in); j.Verdict != job.VerdictRetry {
		t.Errorf("%+v", j)
	}
	if j := profile(t, "", rule).Judge(in); j.Verdict != job.VerdictDone {
		t.Errorf("without anything to compare: %+v", j)
	}
}

func TestWhatIsTheSame(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		body, payload string
		same          bool
	}{
		{`"10.50"`, `10.5`, true}, {`"10.50"`, `"10.5"`, true}, {`1050`, `"1050"`, true}, {`1.05e3`, `1050`, true}, {`-0`, `0`, true},
		{`"007"`, `"7"`, false}, {`"12e4"`, `"120000"`, false}, {`"a"`, `"A"`, false}, {`"eur"`, `"EUR"`, true}, {`"xyz"`, `"XYZ"`, false},
		{`1e999999999`, `1`, false}, {`9007199254740993`, `9007199254740992`, false}, {`true`, `"true"`, true}, {`0.1`, `0.10000000000000000001`, false},
	} {
		in := Input{KeySent: true, KeyLives: true, Result: came(200, `{"f":`+tc.body+`}`), Job: job.Job{ID: "j1", Payload: []byte(`{"f":` + tc.payload + `}`)}}
		if j := (Table{}).Matching(map[string]string{"f": "f"}).Judge(in); (j.Verdict == job.VerdictDone) != tc.same {
			t.Errorf("%s and %s: %+v", tc.body, tc.payload, j)
		}
	}
}

// new_key is never the verdict while an earlier call may have charged, nor on an answer that is only repeated.
func TestANewKeyIsTakenAfterADefiniteNoAlone(t *testing.T) {
	t.Parallel()
	table := profile(t, "stripe", job.Rule{Status: 409, Then: job.VerdictNewKey}, job.Rule{Status: 422, Then: job.VerdictNewKey})
	for _, status := range []int{409, 422} {
		for n := range 32 {
			on := func(bit int) bool { return n&(1<<bit) != 0 }
			in := Input{KeySent: !on(4), KeyLives: true, Again: on(0), Unsure: on(1), Lapse: on(2), Result: came(status, `{"code":"spent"}`)}
			if on(3) {
				in.Result.Header = headers("Idempotent-Replayed", "true")
			}
			want := job.VerdictNewKey
			switch {
			case on(1), on(2), on(3):
				want = job.VerdictUnknown
			case on(4):
				want = job.VerdictRefused
			}
			if on(4) && (on(0) || on(1) || on(2) || on(3)) {
				continue // without keys there is no earlier call with one
			}
			if j := table.Judge(in); j.Verdict != want || j.Fault || want == job.VerdictNewKey && !j.Spent {
				t.Errorf("%d %+v: %+v, want %s", status, in, j, want)
			}
		}
	}
}
