package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/reconcile"
)

// reported writes a settlement report.
func (r *rig) reported(text string) string {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "november.csv")
	r.must(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// payments adds a job of each kind to gateway one.
func (r *rig) payments() {
	r.t.Helper()
	for _, done := range []string{"agrees", "missing", "twice", "amount", "currency", "other"} {
		r.accept(r.manual(r.one), job.Enqueued, charge(done, "1050", "b1"))
		r.succeed(r.one, "pi_"+done)
	}
	r.park(r.one, charge("doubt", "700", "b1"), job.UnknownOutcome, 0, "timed out")
	r.park(r.one, charge("doubt-more", "800", ""), job.UnknownOutcome, 0, "timed out")
	r.park(r.one, charge("doubt-refused", "900", ""), job.UnknownOutcome, 0, "timed out")
	r.park(r.one, charge("refused", "1", ""), job.Refused, 402, "HTTP 402: no")
	r.accept(r.manual(r.one), job.Enqueued, charge("waits", "500", ""))
}

// If a record has no amount, the amount of the report is not compared, and the output says so.
func TestReconcileSaysWhatAmountsItCantCompare(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.accept(r.manual(r.one), job.Enqueued, job.Job{ID: "bare", Gateway: r.one, Payload: []byte(`{}`), Cost: 1})
	r.succeed(r.one, "pi_bare")
	ran := r.reconcile(r.reported("id;gross;currency;status;charge\nbare;10,50;EUR;paid;pi_bare\n"))
	if want := "amounts not compared: of 1 job, since"; ran.code != 0 || !strings.Contains(ran.err, want) {
		t.Errorf("exit code %d, and it said %q, not %q", ran.code, ran.err, want)
	}
}

const november = "id;gross;currency;status;charge\r\n" +
	"agrees;10,50;EUR;paid;pi_agrees\r\n" +
	"twice;10,50;EUR;paid;pi_twice\r\n" +
	"twice;10,50;EUR;paid;pi_twice_2\r\n" +
	"amount;10,51;EUR;paid;pi_amount\r\n" +
	"currency;10,50;USD;paid;pi_currency\r\n" +
	"other;10,50;EUR;paid;pi_another\r\n" +
	"doubt;7,00;EUR;paid;pi_doubt\r\n" +
	"doubt-more;8,01;EUR;paid;pi_more\r\n" +
	"doubt-refused;9,00;EUR;failed;\r\n" +
	"refused;0,01;EUR;failed;\r\n" +
	"waits;5,00;EUR;paid;pi_waits\r\n" +
	"stranger;1.000,00;EUR;paid;pi_x\r\n" +
	"agrees;10,5x;EUR;paid;pi_agrees\r\n" +
	";1,00;EUR;paid;pi_agrees\r\n" +
	"agrees;0,30;EUR;fee;\r\n"

func (r *rig) reconcile(report string, args ...string) ran {
	r.t.Helper()
	return r.command(append([]string{"reconcile", "-g", r.one, "--report", report, "--separator", ";", "--decimal", ",",
		"--map", "id=id,amount=gross,currency=currency,status=status,reference=charge", "--done", "paid", "--refused", "failed"}, args...)...)
}

const novembersTable = `agree	2	EUR 1050	EUR 1050
charged twice	2	EUR 3150	EUR 2100
charged and not done	3	EUR 2001	EUR 2000
  queued	1	EUR 500	EUR 500
  unknown outcome	2	EUR 1501	EUR 1500
done and not charged	1		EUR 1050
other amount	1	EUR 1051	EUR 1050
other currency	1	USD 1050	EUR 1050
refused and in doubt	1		EUR 900
not ours	1	EUR 100000	
`

func TestReconcileSaysWhereTheyDiffer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.payments()
	path := filepath.Join(t.TempDir(), "differ.ndjson")
	r.expect(r.reconcile(r.reported(november), "--differences", path), 3, novembersTable,
		"line 14: the field \"gross\" is not a number: write it like 1698,81\n"+
			"line 15: no id: the field \"id\" is empty\n"+
			"warning: already charged, but it will be called again unless you stop it, so it may be charged twice: 1 job (EUR 5.00) of one: waits\n"+
			"hint: dispatcher pause -g one; then look the job up, and take it out: dispatcher dlq discard --id waits --why \"charged already\"\n"+
			"compared 15 lines with 11 records\n"+
			"passed over, of the status \"fee\": 1; it is neither in --done nor in --refused\n"+
			"dispatcher: the report and the records differ: 10 jobs; 2 lines of the report can't be used\n")
	text, err := os.ReadFile(path)
	r.must(err)
	found := map[string]reconcile.Difference{}
	for line := range strings.Lines(string(text)) {
		var d reconcile.Difference
		r.must(json.Unmarshal([]byte(line), &d))
		found[d.ID] = d
	}
	if d := found["twice"]; len(found) != 10 || d.Kind != reconcile.ChargedTwice || len(d.Lines) != 2 || d.Lines[0] != 3 || d.Batch != "b1" {
		t.Errorf("%d differences; charged twice: %+v", len(found), d)
	}
	if d := found["other"]; d.Kind != reconcile.ChargedTwice || d.Reference != "pi_another" || d.RecordReference != "pi_other" {
		t.Errorf("charged under another reference: %+v", d)
	}
	if d := found["waits"]; !d.GoesOn || d.State != job.Queued || d.Reported.Minor.String() != "500" {
		t.Errorf("charged, and will be called again: %+v", d)
	}
}

func TestReconcileAgrees(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.payments()
	one := r.reported("{\"ref\":{\"job\":\"agrees\"},\"cents\":1050,\"cur\":\"eur\"}\n")
	got := r.command("reconcile", "-g", r.one, "--report", one, "--format", "ndjson", "--map", "id=ref.job,amount=cents,currency=cur", "--amounts", "minor", "--until", "2020-01-01", "-o", "json", "-q")
	var v reconciled
	r.must(json.Unmarshal([]byte(got.out), &v))
	if got.code != 0 || v.Agree.Jobs != 1 || v.Differ() != 0 || v.Records != 11 || v.Agree.Reported.Of("EUR").Int64() != 1050 || got.err != "" {
		t.Errorf("%+v", got)
	}
	// Six jobs of the batch are done, and the report has one of them.
	got = r.command("reconcile", "-g", r.one, "--report", one, "--format", "ndjson", "--map", "id=ref.job", "--batch", "b1", "-o", "json", "-q")
	r.must(json.Unmarshal([]byte(got.out), &v))
	if got.code != 3 || v.Differences[reconcile.DoneNotCharged].Jobs != 5 {
		t.Errorf("%+v", got)
	}
}

func TestReconcileByReferenceAndKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.payments()
	for _, c := range []struct {
		ids, id string
		kind    reconcile.Kind
	}{
		{"reference", "pi_agrees", reconcile.Agree},
		{"reference", "agrees", reconcile.NotOurs},
		{"key", "agrees", reconcile.Agree},
		{"key", "waits", reconcile.ChargedNotDone},
		{"key", "waits~2", reconcile.NotOurs},
	} {
		got := r.command("reconcile", "-g", r.one, "--report", r.reported("id\n"+c.id+"\n"), "--map", "id=id", "--id-is", c.ids, "--until", "2020-01-01", "-o", "json", "-q")
		var v reconciled
		r.must(json.Unmarshal([]byte(got.out), &v))
		n := v.Agree.Jobs
		if c.kind != reconcile.Agree {
			n = v.Differences[c.kind].Jobs
		}
		if n != 1 {
			t.Errorf("%s %s: %s", c.ids, c.id, got.out)
		}
	}
}

func TestReconcileSettlesWhatIsClear(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.served()
	r.payments()
	whole := r.reported(november)
	report := r.reported(strings.Replace(november, ";1,00;EUR;paid;pi_agrees\r\n", "", 1))
	const would = "1 job (EUR 7.00) would be resolved as done\n1 job (EUR 9.00) would be resolved as not done, to go in again with the next key\n"
	if got := r.reconcile(whole, "--resolve", "--again"); !strings.HasSuffix(got.out, "\n1 job (EUR 7.00) would be resolved as done\n") || !strings.Contains(got.err, "no job is called again: ") {
		t.Errorf("with a line that may be any job's: %+v", got)
	}
	if got := r.reconcile(report, "--resolve"); !strings.HasSuffix(got.out, "\n1 job (EUR 7.00) would be resolved as done\n") {
		t.Errorf("without --again: %+v", got)
	}
	if got := r.reconcile(report, "--resolve", "--again"); got.code != 3 || got.out != novembersTable+would || !strings.Contains(got.err, "nothing was changed: add --yes to do it\n") {
		t.Errorf("a dry run: %+v", got)
	}
	if r.record(r.one, "doubt").State != job.Parked || r.trail(r.one) != "" {
		t.Error("a dry run has changed something")
	}
	got := r.reconcile(report, "--resolve", "--again", "--by", "anna", "--yes", "-o", "json")
	var v struct {
		Resolve struct {
			Done    job.Totals
			NotDone job.Totals `json:"not_done"`
			Left    int64
			DryRun  bool `json:"dry_run"`
		}
	}
	r.must(json.Unmarshal([]byte(got.out), &v))
	if got.code != 3 || v.Resolve.Done.Jobs != 1 || v.Resolve.NotDone.Jobs != 1 || v.Resolve.DryRun || v.Resolve.Left != 0 {
		t.Errorf("%+v", got)
	}
	if rec := r.record(r.one, "doubt"); rec.State != job.Done || rec.Reference != "pi_doubt" || !rec.Settled.Done {
		t.Errorf("charged as its record says: %+v", rec)
	}
	if rec := r.record(r.one, "doubt-refused"); rec.State != job.Queued || rec.KeyGeneration != 2 {
		t.Errorf("refused: %+v", rec)
	}
	if rec := r.record(r.one, "doubt-more"); rec.State != job.Parked || rec.Reason != job.UnknownOutcome {
		t.Errorf("charged with another amount: %+v", rec)
	}
	if trail := r.trail(r.one); strings.Count(trail, "anna") != 2 || !strings.Contains(trail, "line 8 of the settlement report november.csv") || !strings.Contains(trail, "--id doubt-refused") {
		t.Errorf("the trail: %s", trail)
	}
	// A refusal of the first key says nothing about the second one.
	r.call(r.one, "doubt-refused", job.UnknownOutcome, 0, "timed out")
	if got := r.reconcile(report, "--resolve", "--again", "--yes"); !strings.HasSuffix(got.out, "no parked job in doubt is made clear by the report\n") {
		t.Errorf("%+v", got)
	}
}

// A job with two calls under one key may have been charged by either of them. A report with contradictory lines makes nothing clear. Neither job is
// called again.
func TestReconcileCallsNobodyAgainInDoubt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.served()
	r.park(r.one, charge("again", "700", "b1"), job.UnknownOutcome, 0, "timed out")
	if got := r.run("replay", "--id", "again", "--expired-keys", "--yes"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	r.call(r.one, "again", job.UnknownOutcome, 0, "timed out")
	r.park(r.one, charge("doubt", "700", "b1"), job.UnknownOutcome, 0, "timed out")
	if rec := r.record(r.one, "again"); rec.KeyGeneration != 1 || rec.Attempts != 1 || len(rec.History) != 2 {
		t.Fatalf("%+v", rec)
	}
	for _, lines := range []string{
		"again;7,00;EUR;failed;pi_1",
		"doubt;7,00;EUR;failed;\r\ndoubt;7,00;EUR;processing;pi_2",
		"doubt;7,00;EUR;failed;\r\ndoubt;7.00;EUR;paid;pi_2",
		"doubt;7,00;EUR;paid;pi_1\r\ndoubt;7,00;EUR;failed;pi_1",
	} {
		got := r.reconcile(r.reported("id;gross;currency;status;charge\r\n"+lines), "--resolve", "--again", "--yes")
		if !strings.HasSuffix(got.out, "no parked job in doubt is made clear by the report\n") {
			t.Errorf("%s: %+v", lines, got)
		}
	}
	for _, id := range []string{"again", "doubt"} {
		if rec := r.record(r.one, id); rec.State != job.Parked || rec.KeyGeneration != 1 {
			t.Errorf("%+v", rec)
		}
	}
}

// --differences overwrites neither the report nor the target of a link. Only the owner can read the file.
func TestReconcileWritesOverNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.payments()
	report, dir := r.reported(november), t.TempDir()
	other, link, victim := filepath.Join(dir, "other"), filepath.Join(dir, "link"), filepath.Join(dir, "victim")
	r.must(os.Link(report, other))
	r.must(os.WriteFile(victim, []byte("precious"), 0o644))
	r.must(os.Symlink(victim, link))
	for path, want := range map[string]string{report: "--differences would write over the report itself", other: "--differences would write over the report itself", link: "is a symbolic link"} {
		if got := r.reconcile(report, "--differences", path); got.code != 2 || !strings.Contains(got.err, want) {
			t.Errorf("%s: %+v", path, got)
		}
	}
	for path, want := range map[string]string{report: november, victim: "precious"} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s has %q, %v", path, text, err)
		}
	}
	if got := r.reconcile(report, "--differences", victim); got.code != 3 {
		t.Errorf("%+v", got)
	}
	if info, err := os.Stat(victim); err != nil || info.Mode().Perm() != 0o600 || info.Size() < 100 {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestReconcileSettlesTheParkingThatItSaw(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.payments()
	at := r.record(r.one, "doubt").ParkedAt
	for _, c := range []struct {
		at   time.Time
		done int64
	}{{at.Add(-time.Microsecond), 0}, {at.Add(time.Microsecond), 0}, {at, 1}} {
		s, err := desk.New(r.c, []config.Gateway{r.gateway(r.one)}).WouldSettle(t.Context(), []reconcile.Clear{{ID: "doubt", ParkedAt: c.at, Done: true}}, "november.csv")
		if err != nil || s.Done.Jobs != c.done || s.Left != 1-c.done {
			t.Errorf("parked at %s, settled as parked at %s: %+v, %v", at, c.at, s, err)
		}
	}
}

func TestReconcileIsAskedWrongly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	report := r.reported("id,gross\n")
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"", "no report is named", 2},
		{"--report " + report, "the map names no id", 2},
		{"--report " + report + " --map id=id,sum=gross", `--map "sum=gross" is not understood`, 2},
		{"--report " + report + " --map id=id,amount=gross", "the map names an amount without a currency", 2},
		{"--report " + report + " --map id=id,amount=gross --currency XXZ", `ISO 4217 lists no currency "XXZ"`, 2},
		{"--report " + report + " --map id=id,status=gross", "not which values are charges", 2},
		{"--report " + report + " --map id=id --done paid", "--done and --refused choose by the status", 2},
		{"--report " + report + " --map id=id,status=gross --done a --refused a", `the status "a" is in --done and in --refused`, 2},
		{"--report " + report + " --map id=invoice", `no column is named "invoice", as --map says`, 2},
		{"--report " + report + " --map id=id,reference=charge", `no column is named "charge", from which --map takes reference`, 2},
		{"--report " + report + " --map id=id --resolve", "--resolve compares amounts, and the map names none", 2},
		{"--report " + report + " --map id=id,amount=gross --amounts minor --resolve", "--resolve compares currencies, and the report has none", 2},
		{"--report " + report + " --map id=id,status=id --done a,", "--done or --refused has an empty status", 2},
		{"--report " + report + " --map id=id --yes", "--yes, --by and --again are for --resolve", 2},
		{"--report " + report + " --map id=id --batch b --since 2d", "--batch and --since or --until don't go together", 2},
		{"--report " + report + " --map id=id --batch nov", `no batch "nov"`, 4},
		{"--report " + report + "x --map id=id", "hint: check the path given to --report; --report - reads standard input", 2},
	} {
		got := r.command(append([]string{"reconcile", "-g", r.one}, strings.Fields(c.args)...)...)
		if got.code != c.code || !strings.Contains(got.err, c.want) {
			t.Errorf("%s: %d %s", c.args, got.code, got.err)
		}
	}
	if got := r.command("reconcile", "--report", report, "--map", "id=id"); got.code != 2 || !strings.Contains(got.err, "a report is of one gateway") {
		t.Errorf("two gateways: %+v", got)
	}
	got := r.commandWith(cli.Streams{In: strings.NewReader("id\n")}, "reconcile", "-g", r.one, "--report", "-", "--format", "csv", "--map", "id=id")
	if got.code != 0 || !strings.HasPrefix(got.out, "agree\t0\t\t\n") {
		t.Errorf("from standard input: %+v", got)
	}
}
