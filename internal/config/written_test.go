package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const writtenFile = `
defaults: {request: {headers: {Authorization: "Bearer ${NOT_SET}", X-Key: sk_canary}, proxy: "http://me:sk_canary@proxy:3128"}, retry: {attempts: 4}}
templates:
  shop:
    request: {url: "https://api.example.com/{merchant.account}?token=sk_canary", key: {prefix: "{name}:"}}
    leak: {limits: [5/s]}
    answers: {rules: [{status: 429, then: hold}], done_needs: {paid: true}}
    map: {note: {value: "1"}}
    lookup: {url: "?r={id}&m={merchant.account}&token=sk_canary", share: 5%, schedule: [1s, 1m], matches: {r: "{id}"}, answers: [{status: 404, body: {code: none}, then: not_done, after: 5s}]}
merchants: {like: shop, file: m.csv}
`

// A line of the file becomes the gateway that could be written out in the configuration, and contains no secret.
func TestWhatALineComesToIsWrittenOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"d.yaml": writtenFile, "m.csv": "name,account,leak.limits,request.timeout\na,acct_1,,\nb,acct_2,9/s 100/m,45s\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Written(filepath.Join(dir, "d.yaml"), []string{"b"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `gateways:
  b:
    retry:
      attempts: 4
    request:
      headers:
        Authorization: ${NOT_SET}
        X-Key: <secret>
      proxy: <secret>
      url: https://api.example.com/acct_2?token=<secret>
      key:
        prefix: "b:"
      timeout: 45s
    leak:
      limits:
      - 9/s
      - 100/m
    answers:
      rules:
      - status: 429
        then: hold
      done_needs:
        paid: true
    map:
      note:
        value: "1"
    lookup:
      url: ?r={id}&m=acct_2&token=<secret>
      share: 5%
      schedule:
      - 1s
      - 1m
      matches:
        r: "{id}"
      answers:
      - status: 404
        body:
          code: none
        then: not_done
        after: 5s
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	all, err := Written(filepath.Join(dir, "d.yaml"), nil)
	if err != nil || !strings.Contains(string(all), "acct_1") || !strings.Contains(string(all), "acct_2") || strings.Contains(string(all), canary) {
		t.Errorf("%v\n%s", err, all)
	}
}
