package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzParse: whatever the file holds, there is a configuration that keeps its promises, or a list of faults that each
// have a place and show no secret. Every variable has a value, and each is secret.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range append(files, "../../examples/dispatcher.yaml") {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{layeredFile, merchantsFile, writtenFile} {
		f.Add([]byte(text))
	}
	const secret = "Zq7-hidden-Zq7"
	env := func(string) (string, bool) { return secret, true }
	f.Fuzz(func(t *testing.T, text []byte) {
		if strings.Contains(string(text), secret) {
			return
		}
		for _, secrets := range []bool{true, false} {
			c, err := Parse("f.yaml", text, Options{Secrets: secrets, Env: env})
			if err == nil {
				checkPromises(t, c)
				continue
			}
			var faults Faults
			if !errors.As(err, &faults) || len(faults) == 0 {
				t.Fatalf("no faults: %v", err)
			}
			for _, one := range faults {
				if one.Message == "" || strings.Contains(one.Error(), secret) {
					t.Errorf("bad message: %v", one)
				}
			}
		}
	})
}

// FuzzMerchants: whatever a merchants file holds, its gateways keep their promises, or there are faults that each have a place.
func FuzzMerchants(f *testing.F) {
	f.Add("name,account,leak.limits,request.headers.X,answers.profile\nm1,a,\"[1/s, 2/m]\",,stripe\nm2,b,5/s,x,\n")
	f.Add("name;a.b.c;account\r\n\xef\xbb\xbfm1;;{id}\n")
	for _, one := range badMerchants {
		f.Add(one.csv)
	}
	dir := f.TempDir()
	text := []byte(strings.Replace(merchantsFile, "${file:keys/{name}}", "${STRIPE_KEY}", 1))
	f.Fuzz(func(t *testing.T, csv string) {
		if err := os.WriteFile(filepath.Join(dir, "merchants.csv"), []byte(csv), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Parse(filepath.Join(dir, "d.yaml"), text, Options{Secrets: true, Env: testEnv})
		if err == nil {
			checkPromises(t, c)
			return
		}
		var faults Faults
		if !errors.As(err, &faults) || len(faults) == 0 {
			t.Fatalf("no faults: %v", err)
		}
		for _, one := range faults {
			if one.Message == "" || one.Line < 1 || strings.Contains(one.Error(), canary) {
				t.Errorf("bad message: %v", one)
			}
		}
	})
}

func checkPromises(t *testing.T, c *Config) {
	t.Helper()
	if len(c.Gateways) == 0 || c.Redis == "" {
		t.Errorf("not all is there: %+v", c)
	}
	for _, g := range c.Gateways {
		switch {
		case len(g.Leak.Limits) == 0, len(g.Admission.Limits) == 0, g.Admission.Burst < 1, g.Leak.Burst < 1:
			t.Errorf("no limits: %+v", g)
		case g.Request.URL == "", g.Request.Timeout <= 0, g.Retry.Attempts < 1, g.Retry.Max < g.Retry.First:
			t.Errorf("can't be served: %+v", g)
		case !g.Request.Key.Any() != (g.Request.KeyLifetime == 0):
			t.Errorf("a header without a lifetime: %+v", g)
		}
	}
}
