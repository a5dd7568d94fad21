package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

// files writes files into a directory and returns how a configuration beside them is read.
func files(t testing.TB, named map[string]string) func(text string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range named {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(text string) (*Config, error) {
		c, err := Parse(filepath.Join(dir, "d.yaml"), []byte(text), Options{Secrets: true, Env: testEnv})
		if err != nil {
			err = fmt.Errorf("%s", strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""))
		}
		return c, err
	}
}

const layeredFile = `
defaults:
  request: {headers: {Authorization: "Bearer ${STRIPE_KEY}", X-Gateway: "{name}"}, key: {prefix: "{name}:"}}
  answers: {profile: stripe, done_needs: {status: succeeded}}
  retry: {attempts: 3}
templates:
  base:
    request: {url: "https://api.example.com/{name}/pay", encoding: form, timeout: 10s}
    leak: {limits: [5/s, 100/m]}
gateways:
  own:
    request: {url: "https://other.example.com/{id}"}
    leak: {limits: [7/s]}
    answers: default
  eu:
    like: base
    request: {timeout: 20s, headers: {X-Region: eu}}
    leak: {limits: [9/s]}
`

// What a gateway says takes precedence over its template, and that over the defaults: mappings are merged, everything else is replaced.
func TestLayers(t *testing.T) {
	t.Parallel()
	c := parse(t, layeredFile)
	own, eu := c.Gateways[0], c.Gateways[1]
	if !slices.Equal(c.Names(), []string{"own", "eu"}) || eu.At.Line != 15 {
		t.Errorf("got %v, %v", c.Names(), eu.At)
	}
	for _, g := range c.Gateways {
		if g.Retry.Attempts != 3 || g.Request.Headers["X-Gateway"].Reveal() != g.Name || g.Request.Headers["Authorization"] != "Bearer "+canary ||
			g.Request.Key.Prefix != g.Name+":" {
			t.Errorf("%s has not all of the defaults: %+v, %v", g.Name, g, g.Request.Headers["X-Gateway"].Reveal())
		}
	}
	if own.Request.URL != "https://other.example.com/{id}" || own.Request.Encoding != "json" || own.Answers.Profile != "default" || own.Answers.DoneNeeds != nil {
		t.Errorf("a gateway without a template: %+v", own)
	}
	if want := []job.Limit{{N: 9, Window: time.Second}}; !slices.Equal(eu.Leak.Limits, want) {
		t.Errorf("the limits are %v, want %v", eu.Leak.Limits, want)
	}
	if q := eu.Request; q.URLText != "https://api.example.com/eu/pay" || q.Encoding != "form" || q.Timeout != 20*time.Second || len(q.Headers) != 3 {
		t.Errorf("a gateway with a template: %+v", q)
	}
	if a := eu.Answers; a.Profile != "stripe" || a.DoneNeeds["status"] == nil {
		t.Errorf("a gateway with a template: %+v", a)
	}
}

const merchantsFile = `
templates:
  base:
    request:
      url: https://api.example.com/{merchant.account}/pay
      headers: {Authorization: "Bearer ${file:keys/{name}}"}
      key: {prefix: "{name}:"}
    leak: {limits: [5/s]}
    amount: {field: amount}
merchants: {like: base, file: merchants.csv}
`

const keyFiles = "keys/"

func TestMerchants(t *testing.T) {
	t.Parallel()
	read := files(t, map[string]string{
		"merchants.csv": "\ufeffname,account, leak.limits ,amount.currency,request.headers.X-Note,contact\r\n" +
			"m1,acct_1,,,,Ann\r\n" +
			"m2,acct_2,9/s 100/m,currency,\"hello, you\",\"Bob \"\"B\"\"\"\r\n" +
			"m3,acct_3,\"[1/s, 20/m]\",,,$1\r\n" +
			"m4,acct_4,,,,\r\n",
		keyFiles + "m1": "one\n", keyFiles + "m2": "two\n", keyFiles + "m3": "three", keyFiles + "m4": "four",
	})
	c, err := read(merchantsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Names(), []string{"m1", "m2", "m3", "m4"}) || len(c.SecretFiles) != 4 {
		t.Fatalf("gateways %v, secrets in %v", c.Names(), c.SecretFiles)
	}
	m1, m2, m3, m4 := c.Gateways[0], c.Gateways[1], c.Gateways[2], c.Gateways[3]
	if m1.Request.URL != "https://api.example.com/acct_1/pay" || m1.Request.Headers["Authorization"].Reveal() != "Bearer one" || m1.Request.Key.Prefix != "m1:" {
		t.Errorf("got %+v", m1.Request)
	}
	if filepath.Base(m2.At.File) != "merchants.csv" || m2.At.Line != 3 || m2.At.Column != 1 {
		t.Errorf("m2 stands at %v", m2.At)
	}
	second, minute := time.Second, time.Minute
	for _, one := range []struct {
		g    Gateway
		want []job.Limit
	}{{m1, []job.Limit{{N: 5, Window: second}}}, {m2, []job.Limit{{N: 9, Window: second}, {N: 100, Window: minute}}},
		{m3, []job.Limit{{N: 1, Window: second}, {N: 20, Window: minute}}}, {m4, []job.Limit{{N: 5, Window: second}}}} {
		if !slices.Equal(one.g.Leak.Limits, one.want) {
			t.Errorf("%s has the limits %v, want %v", one.g.Name, one.g.Leak.Limits, one.want)
		}
	}
	if m2.Amount.Currency != "currency" || m1.Amount.Currency != "" || m2.Request.Headers["X-Note"] != "hello, you" || len(m1.Request.Headers) != 1 {
		t.Errorf("got %+v and %+v", m1, m2)
	}
}

// A gateway of a merchants file is the one that its keys would come to if they stood in the configuration.
func TestAMerchantIsTheGatewayWrittenOut(t *testing.T) {
	t.Parallel()
	read := files(t, map[string]string{"merchants.csv": "name,request.url,leak.limits\nm1,https://api.example.com/,3/s\n"})
	made, err := read("defaults: {retry: {attempts: 2}}\nmerchants: [{file: merchants.csv}]\n")
	if err != nil {
		t.Fatal(err)
	}
	written := parse(t, "gateways:\n  m1: {request: {url: https://api.example.com/}, leak: {limits: [3/s]}, retry: {attempts: 2}}\n")
	a, b := made.Gateways[0], written.Gateways[0]
	if a.At = b.At; !reflect.DeepEqual(a, b) {
		t.Errorf("got\n%+v\nwant\n%+v", a, b)
	}
}

func TestMerchantsOfSeveralFiles(t *testing.T) {
	t.Parallel()
	read := files(t, map[string]string{"a.csv": "name;leak.limits\na1;1/s\na2;2/s\n", "b.csv": "name,request.url\nb1,https://b.example.com/\n"})
	c, err := read(`
defaults: {request: {url: "https://a.example.com/", key: {prefix: "{name}:"}}, leak: {limits: [9/s]}}
gateways: {own: {request: {timeout: 3s}}}
merchants: [{file: a.csv, separator: ";"}, {file: b.csv}]
`)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Names(), []string{"own", "a1", "a2", "b1"}) || c.Gateways[2].Leak.Limits[0].N != 2 {
		t.Errorf("got %+v", c.Gateways)
	}
}

// badMerchants are configurations and merchants files with a mistake, and what is said of it.
var badMerchants = map[string]struct{ file, csv, want string }{
	"bad value": {csv: "name,account,leak.limits\nm1,a,5/s\nm2,a,5/x\n",
		want: `merchants.csv:3:6: gateways.m2.leak.limits[0]: "5/x" is not a limit: write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s`},
	"bad name": {csv: "name,account\nM 1,a\n",
		want: `merchants.csv:2:1: gateways["M 1"]: "M 1" is not a gateway's name: use lower-case letters, digits, _ and -, starting with a letter or digit`},
	"twice": {csv: "name,account\nm1,a\nm2,b\nm1,c\n",
		want: `merchants.csv:4:1: gateways.m1: the gateway is there twice, first in line 2: keep one of them`},
	"twice, in both files": {file: merchantsFile + "gateways: {m2: {like: base, request: {url: https://a.example.com/}}}\n", csv: "name,account\nm1,a\nm2,b\n",
		want: `merchants.csv:3:1: gateways.m2: the gateway is there twice, first in d.yaml line 11: keep one of them`},
	"unknown key": {csv: "name,account,leak.limit\nm1,a,5/s\nm2,b,6/s\n",
		want: `merchants.csv:1:14: gateways.m1.leak.limit: unknown key: did you mean limits? (and 1 more like it)`},
	"no such column": {csv: "name,acount\nm1,a\n",
		want: `d.yaml:5:12: gateways.m1.request.url: "https://api.example.com/{merchant.account}/pay" has {merchant.account} in it, and merchants.csv has no such column: did you mean {merchant.acount}?`},
	"empty column": {csv: "name,account\nm1,a\nm2,\n",
		want: `merchants.csv:3:4: gateways.m2.request.url: "https://api.example.com/{merchant.account}/pay" needs the column account, which is empty in this line: fill it in`},
	"braces in a column": {csv: "name,account\nm1,{id}\n",
		want: `merchants.csv:2:4: gateways.m1.request.url: "https://api.example.com/{merchant.account}/pay" needs the column account, which has a $, { or } in it here: those have a meaning of their own, write such a value as a column of its key`},
	"no secret": {csv: "name,account\nm1,a\nm9,b\n",
		want: `merchants.csv:3:1: gateways.m9.request.headers.Authorization: ${file:keys/m9} can't be read: no such file or directory: name a file that the user of this command may read`},
	"of a value": {csv: "name,account\nm1,a b\n",
		want: `merchants.csv:2:4: gateways.m1.request.url: "https://api.example.com/a b/pay" is not a URL: write one like https://api.example.com/v1/payments`},
	"too few columns": {csv: "name,account\nm1\nm2,b\n",
		want: `merchants.csv:2:1: the line has 1 columns and the first one 2: give each column a value, an empty one where the template's holds`},
	"quotes": {csv: "name,account\nm1,\"a\" b\n",
		want: `merchants.csv:2:6: not valid CSV: extraneous or missing " in quoted-field: look at the quotes, and write one within quotes twice`},
	"no name column":   {csv: "Name,account\nm1,a\n", want: `merchants.csv:1:1: there is no column "name": add one with the gateways' names`},
	"wrong separator":  {csv: "name;account\nm1;a\n", want: `merchants.csv:1:1: there is no column "name": name what stands between the columns, like separator: ";"`},
	"column twice":     {csv: "name,account,account\nm1,a,b\n", want: `merchants.csv:1:14: the column "account" is there twice: keep one of them`},
	"column no name":   {csv: "name,,account\nm1,a,b\n", want: `merchants.csv:1:6: a column has no name: give it one, or take it out`},
	"empty":            {csv: "", want: `merchants.csv:1:1: the file is empty: its first line names the columns, like name,request.url,leak.limits`},
	"no lines":         {csv: "name,account\n", want: `d.yaml:10:1: merchants: there are no gateways: a merchants file needs a line for each below the names of its columns`},
	"not UTF-8":        {csv: "name,account\nm1,caf\xe9\n", want: `merchants.csv:2:7: the byte 0xe9 is not text: save the file as UTF-8, and write such a character as an escape in double quotes`},
	"no such file":     {file: "merchants: {file: m.csv}\n", want: `d.yaml:1:19: merchants.file: "m.csv" can't be read: no such file or directory: name a file that the user of this command may read`},
	"no file":          {file: "templates: {base: {}}\nmerchants: {like: base}\n", want: `d.yaml:2:1: merchants.file: is missing: name the CSV file with a gateway in each line, like merchants.csv`},
	"bad separator":    {file: "merchants: {file: merchants.csv, separator: x}\n", want: `d.yaml:1:45: merchants.separator: "x" can't stand between columns: use , or ; or | or tab`},
	"no such template": {file: "templates: {base: {}}\nmerchants: {like: bsae, file: merchants.csv}\n", want: `d.yaml:2:19: merchants.like: there is no template "bsae": it is one of base`},
	"no such template at all": {file: "gateways: {g: {like: base}}\n",
		want: `d.yaml:1:22: gateways.g.like: there is no template "base": the file has no templates, write it below templates, or name a pack, as dispatcher packs list has them`},
	"like in a template": {file: "templates: {a: {like: b}}\n" + minimal,
		want: `d.yaml:1:17: templates.a.like: only gateways and merchants are like a template: put what several templates share into defaults`},
	"template's name": {file: "templates: {a/b: {}}\n" + minimal,
		want: `d.yaml:1:13: templates["a/b"]: "a/b" is not a template's name: use lower-case letters, digits, _ and -, starting with a letter or digit`},
	"defaults are a list": {file: "defaults: []\n" + minimal,
		want: `d.yaml:1:1: defaults: this is not a mapping: write keys of a gateway below it, such as leak: {limits: [5/s]}`},
	"a column without a file": {file: "gateways: {g: {request: {url: \"https://a.example.com/{merchant.x}\"}, leak: {limits: [1/s]}}}\n",
		want: `d.yaml:1:31: gateways.g.request.url: "https://a.example.com/{merchant.x}" has {merchant.x} in it, and this gateway does not come from a merchants file: write {name} or the value itself`},
	"a fault of the template": {file: strings.Replace(merchantsFile, "[5/s]", "[5/x]", 1), csv: "name,account\nm1,a\nm2,b\nm3,b\n",
		want: `d.yaml:8:21: gateways.m1.leak.limits[0]: "5/x" is not a limit: write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s (and 2 more like it)`},
	"nothing that is required": {file: "merchants: {file: merchants.csv}\n", csv: "name,leak.limits\nm1,5/s\n",
		want: `merchants.csv:2:1: gateways.m1.request.url: is missing: write where the gateway is called, like https://api.example.com/v1/payments`},
}

func TestBadMerchants(t *testing.T) {
	t.Parallel()
	for name, one := range badMerchants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := one.file
			if file == "" {
				file = merchantsFile
			}
			named := map[string]string{"merchants.csv": one.csv}
			for i := range 5 {
				named[keyFiles+fmt.Sprintf("m%d", i)] = canary
			}
			_, err := files(t, named)(file)
			if err == nil {
				t.Fatal("no error")
			}
			if got := err.Error(); got != one.want || strings.Contains(got, canary) {
				t.Errorf("got\n%s\nwant\n%s", got, one.want)
			}
		})
	}
}

// A mistake in a column is reported ten times, not three thousand, and so are gateways whose keys can't be told apart.
func TestFaultsOfManyMerchantsAreBounded(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	lines.WriteString("name,leak.limits\n")
	for i := range 3000 {
		fmt.Fprintf(&lines, "m%d,%d/x\n", i, i)
	}
	read := files(t, map[string]string{"merchants.csv": lines.String()})
	_, err := read("defaults: {request: {url: https://api.example.com/}}\nmerchants: {file: merchants.csv}\n")
	told := strings.Split(err.Error(), "\n")
	if len(told) != 20 {
		t.Fatalf("%d lines:\n%s", len(told), err)
	}
	for _, want := range []string{`"9/x" is not a limit: write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s (and 2,990 more like it)`,
		"m10.request.idempotency_prefix: gateway \"m0\" (line 2) calls https://api.example.com:443 too", "such as \"{name}:\" for all of a template", "(and 2,989 more like it)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in\n%s", want, err)
		}
	}
}

// Two gateways of one provider clash exactly if one prefix begins with the other, whichever comes first.
func TestPrefixesOfManyGatewaysAreTold(t *testing.T) {
	t.Parallel()
	p := newPrefixes()
	for i, one := range []struct {
		prefix string
		first  int
	}{{"eu-", 0}, {"us-", 1}, {"", 2}, {"eu-west-", 0}, {"e", 0}, {"eu-", 0}, {"", 2}, {"u", 1}, {"asia", 8}, {"as", 8}, {"us-east", 1}, {"zz", 11}} {
		if got := p.add(one.prefix, i); got != one.first {
			t.Errorf("%d %q: first of its like is %d, want %d", i, one.prefix, got, one.first)
		}
	}
}

// crowd writes a merchants file of many lines, and returns what reads it.
func crowd(t testing.TB, n int) func() (*Config, error) {
	t.Helper()
	var lines strings.Builder
	lines.WriteString("name,account,leak.limits\n")
	for i := range n {
		fmt.Fprintf(&lines, "m%04d,acct_%d,%d/s\n", i, i, 1+i%9)
	}
	read := files(t, map[string]string{"merchants.csv": lines.String()})
	text := strings.Replace(merchantsFile, "${file:keys/{name}}", "${STRIPE_KEY}", 1)
	return func() (*Config, error) { return read(text) }
}

func BenchmarkMerchants(b *testing.B) {
	read := crowd(b, 3000)
	b.ReportAllocs()
	for b.Loop() {
		if c, err := read(); err != nil || len(c.Gateways) != 3000 {
			b.Fatal(err)
		}
	}
}
