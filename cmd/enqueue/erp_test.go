package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spillway/internal/testkit"
)

const erpConfig = `redis: %s
gateways:
  %s:
    request: {url: "https://user:${NOT_SET_ANYWHERE}@pay.example/{id}", headers: {Authorization: "Bearer ${NOT_SET_ANYWHERE}"}}
    amount: {field: amount, currency: currency, most: 100000000%s}
    leak: {limits: [100/s]}
    map:
      amount: {from: Betrag, minor: true}
      currency: {from: Währung, lower: true}
      metadata.invoice: {from: Rechnung}
      description: {from: Buchungstext}
      customer: {from: Kunde}
      confirm: {value: true}
`

// erpFile is a file as ERP systems write it: a byte order mark although the text is latin-1, semicolons, decimal commas, and CRLF. Most of its lines
// are invalid.
const erpFile = "\xef\xbb\xbfRechnung;Kunde;Betrag;W\xe4hrung;Buchungstext;Filiale\r\n" +
	"RE-1001;M\xfcller & S\xf6hne;\"1.698,81\";EUR;\"Wartung; Nov. \"\"26\"\"\";7\r\n" +
	"RE-1002;Caf\xe9 Harbour;12,5;GBP;;7\r\n" +
	"RE-1003;Fjord AS;1.050;JPY;Lizenz;7\r\n" +
	"\r\n" +
	"RE-1004;Al Noor;1,005;KWD;\"zwei\r\nZeilen\";8\r\n" +
	erpBad

const erpBad = "RE-1005;A;;EUR;;8\r\n" +
	"RE-1006;A;12,345;EUR;;8\r\n" +
	"RE-1007;A;-5,00;EUR;;8\r\n" +
	"RE-1008;A;12.34;EUR;;8\r\n" +
	"RE-1009;A;5,00;EUR\r\n" +
	"RE-1010;A;5,00;XYZ;;8\r\n" +
	"RE-1011;A;1.000.000,01;EUR;;8\r\n" +
	";A;5,00;EUR;;8\r\n" +
	"RE-1012;M\xc3\xbcller;5,00;EUR;;8\r\n" +
	"RE-1013;A;5\" Rohr;EUR;;8\r\n" +
	"RE-1014;\x80;5,00;EUR;;8\r\n"

const erpSaid = `line 8: no amount: the field "amount" is missing or null, and amount.required asks for it; the map takes it from "Betrag"
line 9: the amount in the field "Betrag" has 3 decimals, and its currency is divided into 2
line 10: the amount in the field "amount" is below 1, which amount.least allows; the map takes it from "Betrag"
line 11: the field "Betrag" is not a number with ',' before its decimals: say --decimal '.' if the file has '.' there
line 12: has 4 fields, but the header row has 6
line 13: the field "Währung" has no currency that ISO 4217 lists: write its three letters, like EUR
line 14: the amount in the field "amount" is above 100000000, which amount.most allows; the map takes it from "Betrag"
line 15: no id: the field "Rechnung" is empty
line 16: byte 10 begins a character of UTF-8, not of latin-1: leave --encoding out
line 17: field 3 ("Betrag") has a quote within, but does not start with one: put the field in quotes and write the quote twice
line 18: byte 9 is not a character of latin-1: say --encoding windows-1252
`

// erpPayloads are the payloads of the valid lines.
var erpPayloads = map[string]string{
	"RE-1001": `{"amount":169881,"confirm":true,"currency":"eur","customer":"Müller & Söhne","description":"Wartung; Nov. \"26\"","metadata":{"invoice":"RE-1001"}}`,
	"RE-1002": `{"amount":1250,"confirm":true,"currency":"gbp","customer":"Café Harbour","metadata":{"invoice":"RE-1002"}}`,
	"RE-1003": `{"amount":1050,"confirm":true,"currency":"jpy","customer":"Fjord AS","description":"Lizenz","metadata":{"invoice":"RE-1003"}}`,
	"RE-1004": `{"amount":1005,"confirm":true,"currency":"kwd","customer":"Al Noor","description":"zwei\r\nZeilen","metadata":{"invoice":"RE-1004"}}`,
}

func erpArgs(more ...string) []string {
	return append([]string{"-f", "erp.csv", "--id-field", "Rechnung", "--separator", ";", "--decimal", ",", "--encoding", "latin-1"}, more...)
}

func erp(t *testing.T, amount string) *bench {
	t.Helper()
	b := setup(t, place{})
	b.write("dispatcher.yaml", fmt.Sprintf(erpConfig, testkit.Redis(t), b.g, amount))
	b.write("erp.csv", erpFile)
	return b
}

func TestAFileOfAnERPSystemGoesIn(t *testing.T) {
	b := erp(t, "")
	b.want(b.run(erpArgs("--rejects", "bad.csv", "-o", "json")...), result{3, counts(15, 4, 0, 0, 11, 0),
		erpSaid + "enqueue: 11 of 15 lines could not be used\nhint: mend them in bad.csv and enqueue that\n"})
	for id, want := range erpPayloads {
		if got := string(b.record(b.g, id).Job.Payload); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
	if got, want := b.read("bad.csv"), "Rechnung;Kunde;Betrag;W\xe4hrung;Buchungstext;Filiale\r\n"+erpBad; got != want {
		t.Errorf("the rejects are not the lines as they were read: %q", got)
	}
	// The same jobs as NDJSON have the same payloads, so they are duplicates.
	b.write("erp.ndjson", `{"Kunde":"Müller & Söhne","Rechnung":"RE-1001","Betrag":1698.810,"Währung":"EUR","Filiale":7,"Buchungstext":"Wartung; Nov. \u002226\u0022"}
{"Kunde":"Café Harbour","Rechnung":"RE-1002","Betrag":"12,50","Währung":"GBP","Buchungstext":null}
{"Rechnung":"RE-1003","Betrag":1050,"Währung":"JPY","Buchungstext":"Lizenz","Kunde":"Fjord AS"}
`)
	b.want(b.run("-f", "erp.ndjson", "--id-field", "Rechnung", "--decimal", ",", "-o", "json"), result{0, counts(3, 0, 0, 3, 0, 0), ""})
	b.stdin = strings.NewReader(`{"id":"RE-1004","payload":{"Rechnung":"RE-1004","Betrag":"1.005","Währung":"KWD","Buchungstext":"zwei\r\nZeilen","Kunde":"Al Noor"}}
{"id":"RE-1002","mapped":true,"payload":` + erpPayloads["RE-1002"] + `}`)
	b.want(b.run("-f", "-", "-o", "json"), result{0, counts(2, 0, 0, 2, 0, 0), ""})
}

func TestADryRunShowsMoneyAndJobs(t *testing.T) {
	b := erp(t, ", required: false")
	said := strings.TrimPrefix(erpSaid, erpSaid[:strings.Index(erpSaid, "line 9")])
	got := b.run(erpArgs("--dry-run", "--show", "2")...)
	got.out = strings.ReplaceAll(got.out, b.g, "G")
	b.want(got, result{3, "G: job RE-1001: POST https://user:<secret>@pay.example/{id}\n" + erpPayloads["RE-1001"] + "\n" +
		"G: job RE-1002: POST https://user:<secret>@pay.example/{id}\n" + erpPayloads["RE-1002"] + "\n" +
		"read\t15\nusable\t5\ninvalid\t10\nmoney\tEUR 1,698.81, GBP 12.50, JPY 1,050, KWD 1.005, 1 job without an amount\nseconds\tN\njobs per second\tN\n",
		said + "dry run: nothing was sent to Redis\nenqueue: 10 of 15 lines could not be used\n" + unusable})
	got = b.run(erpArgs("--dry-run", "--show", "1", "-o", "json")...)
	want := strings.Replace(counts(15, 0, 0, 0, 10, 5), "}\n", `,"dry_run":true,"usable":5,"amount":{"EUR":169881,"GBP":1250,"JPY":1050,"KWD":1005},"without_amount":1,`+
		`"show":[{"gateway":"`+b.g+`","id":"RE-1001","method":"POST","url":"https://user:<secret>@pay.example/{id}","payload":`+erpPayloads["RE-1001"]+"}]}\n", 1)
	b.want(result{got.code, got.out, ""}, result{3, want, ""})
	if quiet := b.run(erpArgs("--dry-run")...); strings.Contains(quiet.out+quiet.err, "Fjord") {
		t.Errorf("payloads are shown without --show: %+v", quiet)
	}
	if ids := b.queued(b.g); len(ids) > 0 {
		t.Errorf("queued: %v", ids)
	}
}

// A dry run shows the payload that would be sent. The money is read from the payload before fields are stripped.
func TestADryRunShowsNoFieldThatIsNotSent(t *testing.T) {
	b := setup(t, place{})
	b.write("dispatcher.yaml", "redis: "+testkit.Redis(t)+`
gateways:
  `+b.g+`:
    request: {url: "https://pay.example", headers: {Stripe-Account: "{payload.account}"}, strip: [account, money.amount]}
    amount: {field: money.amount, currency: money.currency}
    leak: {limits: [100/s]}
`)
	b.write("jobs.ndjson", `{"id":"a","payload":{"account":"acct_1", "money":{"amount":1050,"currency":"EUR"} }}`+"\n")
	got := b.run("-f", "jobs.ndjson", "--dry-run", "--show", "1")
	if want := "\n" + `{"money":{"currency":"EUR"}}` + "\n"; got.code != 0 || !strings.Contains(got.out, want) || strings.Contains(got.out, "acct_1") || !strings.Contains(got.out, "EUR 10.50") {
		t.Errorf("%+v", got)
	}
}

// The example does what examples/README.md says.
func TestTheExampleOfAnERPSystem(t *testing.T) {
	b := setup(t, place{})
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	got := b.run("-c", filepath.Join(examples, "erp.yaml"), "-f", filepath.Join(examples, "erp.csv"), "--id-field", "Rechnung",
		"--separator", ";", "--decimal", ",", "--encoding", "latin-1", "--dry-run", "--show", "3")
	for _, want := range []string{`{"amount":169881,"confirm":true,"currency":"eur","customer":"cus_ba5vkRuW3Aq8JR","description":"Wartung; November \"2026\"",` +
		`"metadata":{"invoice":"RE-4711"},"off_session":true}` + "\n", "usable\t5\n", "money\tEUR 1,711.31, GBP 1,250.00, JPY 10,500, KWD 7.125\n"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%s\nhas no %s", got.out, want)
		}
	}
	if lines := regexp.MustCompile(`(?m)^line \d+`).FindAllString(got.err, -1); got.code != 3 || fmt.Sprint(lines) != "[line 7 line 8 line 9]" {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
}

func TestSumsOfSeveralCurrenciesAreExpected(t *testing.T) {
	b := erp(t, "")
	b.write("erp.csv", strings.TrimSuffix(erpFile, erpBad))
	right := "EUR=1698.81,GBP=12.5,JPY=1050,kwd=1.005"
	got := b.run(erpArgs("--expect-sum", "EUR=1698.81,GBP=12.51,JPY=1050", "-o", "json")...)
	b.want(got, result{3, withControl(counts(4, 0, 0, 0, 0, 4), `{"count":4,"sums":{"EUR":169881,"GBP":1250,"JPY":1050,"KWD":1005},"expected_sums":{"EUR":169881,"GBP":1251,"JPY":1050}}`),
		"enqueue: erp.csv is refused: its amounts add up to EUR 1,698.81 (169881) and GBP 12.50 (1250) and JPY 1,050 (1050) and KWD 1.005 (1005), " +
			"and EUR 1,698.81 (169881) and GBP 12.51 (1251) and JPY 1,050 (1050) was expected\n" +
			"hint: nothing was enqueued; ask for a complete file, or correct the control totals\n"})
	b.want(b.run(erpArgs("--expect-sum", right, "--expect-count", "4")...), result{0,
		"read\t4\nenqueued\t4\nwaiting for room\t0\nduplicate\t0\ninvalid\t0\nfailed\t0\nseconds\tN\njobs per second\tN\n",
		"the file holds 4 jobs (EUR 1,698.81, GBP 12.50, JPY 1,050, KWD 1.005), as expected\n"})
	for sums, says := range map[string]string{
		"EUR=1,USD":      `"" is not a sum of USD`,
		"EUR=1,EUR=2":    "EUR is there twice",
		"EUR=12,50":      `"50" says no currency`,
		"XYZ=1":          `ISO 4217 lists no currency "XYZ"`,
		"JPY=1.5":        `"1.5" has more decimals than JPY, which has 0`,
		"EUR=1.698,81":   `"1.698" has more decimals than EUR, which has 2`,
		"EUR=9.":         `"9." is not a sum of EUR`,
		"EUR=--1":        `"--1" is not a sum of EUR`,
		"EUR=1698.8.1":   `"1698.8.1" is not a sum of EUR`,
		"EUR=,GBP=12.50": `"" is not a sum of EUR`,
	} {
		hint := "write each currency once, with its sum in its own units: EUR=9635.86,JPY=1050"
		if sums == "EUR=12,50" {
			hint = "between currencies stands a comma, and before decimals a point: EUR=9635.86,JPY=1050"
		}
		b.want(b.run(erpArgs("--expect-sum", sums)...), result{2, "", "enqueue: --expect-sum: " + says + "\nhint: " + hint + "\n"})
	}
}

func TestFormsAskedForWrongly(t *testing.T) {
	b := erp(t, "")
	b.write("plain.yaml", "gateways: {g: {request: {url: https://pay.example}, leak: {limits: [1/s]}}}\n")
	for _, c := range []struct {
		args []string
		err  string
	}{
		{[]string{"-f", "erp.csv", "--id-field", "Rechnung", "--encoding", "latin-1"}, "line 1: the header row: no column is named \"Rechnung\", as --id-field says\n" +
			"hint: fields are separated by commas; this file seems to use another separator: say --separator ';'"},
		{[]string{"-f", "erp.csv", "--id-field", "Rechnung", "--separator", ";"}, "line 1: the header row: byte 24 is not UTF-8: convert the file, as with iconv -t UTF-8; " +
			"or say --encoding windows-1252, if Excel wrote it, or latin-1\nhint: name the file's encoding with --encoding, or convert the file to UTF-8"},
		{erpArgs("--separator", "semicolon"), "--separator \"semicolon\" is not one character\nhint: give one character in quotes, like ';'"},
		{erpArgs("--format", "ndjson"), "--separator is for CSV files\nhint: leave it out, or say --format csv"},
		{erpArgs("--show", "3"), "--show is for a dry run, and takes a number of jobs\nhint: write --dry-run --show 3, or leave it out"},
		{erpArgs("--dry-run", "--show", "-1"), "--show is for a dry run, and takes a number of jobs\nhint: write --dry-run --show 3, or leave it out"},
		{[]string{"-c", "plain.yaml", "-f", "x.ndjson", "--decimal", ","}, "--decimal is for numbers that a gateway's map reads, and no gateway in plain.yaml has one\n" +
			"hint: add a map to the gateway (docs/configuration.md, Billing files), or leave it out"},
	} {
		b.want(b.run(c.args...), result{2, "", "enqueue: " + c.err + "\n"})
	}
}

// Only the first of many equal errors are shown, so that they do not hide others.
func TestFaultsThatAreAlikeAreBounded(t *testing.T) {
	b := setup(t, place{})
	var file, said strings.Builder
	for i := range 250 {
		fmt.Fprintf(&file, "{\"id\":\"a-%d\",\"cost\":0}\n{\"id\":\"b\",\"x%d\":1}\n", i, i)
		if i < 100 {
			fmt.Fprintf(&said, "line %d: cost must be a whole number of at least 1\nline %d: unknown key \"x%d\": "+unknownKey+"\n", 2*i+1, 2*i+2, i)
		}
	}
	said.WriteString("cost must be a whole number of at least 1: and 150 more like it\nunknown key \"x0\": " + unknownKey + ": and 150 more like it\n" +
		"enqueue: 500 of 501 lines could not be used\nhint: mend them in bad and enqueue that\n")
	b.write("a.ndjson", file.String()+`{"id":"good"}`+"\n")
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--rejects", "bad"), result{3, counts(501, 1, 0, 0, 500, 0), said.String()})
	if b.read("bad") != file.String() {
		t.Error("the rejects are not all of them")
	}
	got := b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--expect-count", "2")
	if n := strings.Count(got.err, "\nline "); n != shownFaults-1 || !strings.Contains(got.err, "\nand 480 more\n") {
		t.Errorf("a file that is refused: %s", got.err)
	}
}

const unknownKey = "known are id, payload, gateway, route, lane, priority, cost, at, expires and batch; where the line itself is the payload, name its id with --id-field"

// With --without-amount, a replacement needs no amount.
func TestReplaceWithoutAmountAsksForNone(t *testing.T) {
	b := erp(t, "")
	b.write("x.ndjson", `{"id":"RE-1","payload":{"x":1}}`+"\n")
	none := "line 1: no amount: the field \"amount\" is missing or null, and amount.required asks for it\n"
	if got := b.run("--replace", "-f", "x.ndjson", "--dry-run"); !strings.HasPrefix(got.err, none) {
		t.Errorf("%+v", got)
	}
	if got := b.run("--replace", "-f", "x.ndjson", "--dry-run", "--without-amount"); strings.Contains(got.err, "no amount") || !strings.HasPrefix(got.err, "line 1: ") {
		t.Errorf("%+v", got)
	}
}
