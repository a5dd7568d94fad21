package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/job"
)

func TestOutcomesCopyRefusesWhatCanNotBeMeant(t *testing.T) {
	r := newRig(t)
	r.fed("{readers: [ledger]}")
	t.Setenv("EMPTY", "")
	t.Setenv("LEDGER_URL", "postgres://u:canary@127.0.0.1:1/db?connect_timeout=1")
	t.Setenv("PASSWORD", "cana/ry")
	for _, c := range []struct {
		args string
		code job.Code
		says string
	}{
		{"--to postgres://h/db --table t", job.CodeUsage, "no --reader"}, {"--reader ledger --table t", job.CodeUsage, "--to does not say"},
		{"--reader ledger --to postgres://h/db", job.CodeUsage, "no --table"}, {"--reader ledger --to ftp://h/db --table t", job.CodeUsage, "--to is not an address"},
		{"--reader ledger --to https://h/", job.CodeUsage, "webhooks go out signed"}, {"--reader ledger --to https://h/ --sign", job.CodeUsage, "${WEBHOOK_SECRET} is not set"},
		{"--reader ledger --to https://h/ --sign --secret whsec_canary", job.CodeUsage, "may not stand in --secret"}, {"--reader ledger --to https://h/ --sign --secret ${PASSWORD}", job.CodeUsage, "a secret of the webhooks is none"},
		{"--reader ledger --to https://h/ --sign --table t", job.CodeUsage, "--table is for a PostgreSQL"},
		{"--reader ledger --to postgres://h/db --table t --rows 0", job.CodeUsage, "--rows 0"}, {"--reader ledger --to postgres://h/db --table T", job.CodeUsage, "not a name of a table"},
		{"--reader ledger --to ${EMPTY} --table t", job.CodeUsage, "--to: ${EMPTY} is empty"}, {"--reader ledger --to ${file:nowhere} --table t", job.CodeUsage, "${file:nowhere} can't be read"},
		{"--reader ledger --to postgres://u:${PASSWORD}@h/db --table t", job.CodeUsage, "can't be read"},
		{"--reader nobody --to postgres://h/db --table t", job.CodeNotFound, "no gateway has a reader"}, {"-g " + r.two + " --reader ledger --to postgres://h/db --table t", job.CodeNotFound, "has no outcome feed"},
		{"-g " + r.one + " --reader nobody --to postgres://h/db --table t", job.CodeNotFound, "it names ledger"},
	} {
		var out, err strings.Builder
		code := cli.Main(name, newCommand, append(strings.Fields("outcomes copy --once "+c.args), "-c", r.file), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &err})
		if code != map[job.Code]int{job.CodeUsage: 2, job.CodeNotFound: 4}[c.code] || !strings.Contains(err.String(), c.says) || strings.Contains(err.String(), "cana") || out.Len() > 0 {
			t.Errorf("%s: %d %s", c.args, code, err.String())
		}
	}
}

func TestAPasswordInAFlagIsWarnedOf(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{"postgres://u:secret@h/db": true, "postgres://u:${PASSWORD}@h/db": false, "postgres://u:${file:/run/p}@h/db": false, "${file:/run/url}": false, "postgres://u@h/db": false} {
		var err strings.Builder
		new(cli.Common).WarnOfPassword(cli.Streams{Err: &err}, "--to", url, "do")
		if (err.Len() > 0) != want || strings.Contains(err.String(), "secret") {
			t.Errorf("%s: %q", url, err.String())
		}
	}
}

// A destination that others could read, or stand in for, is warned of, and one that is checked is not.
func TestADestinationThatIsNotCheckedIsWarnedOf(t *testing.T) {
	t.Setenv("PGSSLMODE", "")
	for to, want := range map[string]bool{"postgres://u@db/x": true, "postgres://u@db/x?sslmode=verify-full": false, "postgres://u@127.0.0.1/x": false} {
		for _, quiet := range []bool{false, true} {
			var err strings.Builder
			p := &program{Streams: cli.Streams{Err: &err}}
			p.Quiet = quiet
			_, _, _, _ = p.sinkOf(&copyFlags{to: to, table: "t", rows: 1, reader: "ledger"})
			if strings.HasPrefix(err.String(), "warning: anyone on the way to PostgreSQL") != (want && !quiet) {
				t.Errorf("%s, quiet %v: %q", to, quiet, err.String())
			}
		}
	}
}

// If the receiver refuses an outcome for good, the copy stops there. The command that the error names skips that outcome only.
func TestOutcomesAreSentAsWebhooks(t *testing.T) {
	r := newRig(t)
	r.fed("{readers: [mailer]}")
	t.Setenv("HOOKS", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	var mu sync.Mutex
	var took []string
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		subject := regexp.MustCompile(`"subject":"(\w+)"`).FindSubmatch(body)
		if len(strings.Fields(q.Header.Get("Webhook-Signature"))) != 2 || subject == nil {
			t.Errorf("%v %s", q.Header, body)
			return
		}
		if string(subject[1]) == "c" {
			w.WriteHeader(http.StatusGone)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, string(subject[1]))
	}))
	t.Cleanup(receiver.Close)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		r.park(r.one, job.Job{ID: id}, job.Refused, 402, "no")
	}
	send := func() (int, string, string) {
		var out, err strings.Builder
		args := []string{"outcomes", "copy", "--once", "--reader", "mailer", "--to", receiver.URL + "/?key=canary", "--sign", "--secret", "${HOOKS}", "-q", "-o", "json", "-c", r.file}
		code := cli.Main(name, newCommand, args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &err})
		return code, out.String(), err.String()
	}
	code, out, errs := send()
	hint := regexp.MustCompile(`To pass over this one: dispatcher (.*)\n`).FindStringSubmatch(errs)
	if code != 1 || !strings.Contains(errs, "job c (parked) at "+r.one+": HTTP 410") || strings.Contains(errs, "canary") || hint == nil || !strings.Contains(out, `"copied":`) {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	if got := toldOf(r.outcomes(strings.Fields(strings.TrimPrefix(hint[1], "outcomes "))...)); got != "c parked/refused" {
		t.Errorf("the hint passes over %s", got)
	}
	if code, _, errs := send(); code != 0 || errs != "" {
		t.Errorf("%d %s", code, errs)
	}
	slices.Sort(took)
	if got := strings.Join(slices.Compact(took), ""); got != "abde" {
		t.Errorf("the receiver has %s", got)
	}
	if left := r.outcomes("--reader", "mailer"); len(left) != 0 {
		t.Errorf("left are %s", toldOf(left))
	}
}
