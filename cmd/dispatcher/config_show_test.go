package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/internal/cli"
)

func TestConfigShow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "d.yaml")
	for path, text := range map[string]string{
		file: "templates: {shop: {request: {url: \"https://api.example.com/{name}\", headers: {Key: \"${SHOP_KEY_UNSET}\"}, key: {prefix: \"{name}:\"}}, leak: {limits: [5/s]}}}\n" +
			"merchants: {like: shop, file: shops.csv}\n",
		filepath.Join(dir, "shops.csv"): "name,leak.limits\na,\nb,9/s\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{[]string{"config", "show", "-g", "b", "-o", "json"}, 0, []string{`{"gateways": {"b": {`, `"url": "https://api.example.com/b"`, `"limits": ["9/s"]`}},
		{[]string{"config", "show"}, 0, []string{"gateways:\n  a:\n", "\n  b:\n", "Key: ${SHOP_KEY_UNSET}"}},
		{[]string{"config", "show", "-g", "c"}, cli.ExitNotFound, []string{`no gateway "c"`}},
		{[]string{"config"}, 0, []string{"config show -g stripe"}},
	} {
		var out bytes.Buffer
		code := cli.Main(name, newCommand, append(c.args, "-c", file), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		for _, want := range c.says {
			if code != c.code || !strings.Contains(out.String(), want) {
				t.Errorf("%v: exit code %d\n%s\nwant %d and %s", c.args, code, out.String(), c.code, want)
			}
		}
	}
}
