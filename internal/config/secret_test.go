package config

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	s := Secret(canary)
	if s.Reveal() != canary {
		t.Fatal("Reveal does not")
	}
	c := Config{Token: s, Redis: s, Gateways: []Gateway{{Request: Request{URL: s, Headers: map[string]Secret{"A": s}}}}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%20s"} {
		fmt.Fprintf(&out, verb+"\n", s)
		fmt.Fprintf(&out, verb+"\n", c)
		fmt.Fprintf(&out, verb+"\n", &c)
	}
	asJSON, errJSON := json.Marshal(c)
	asYAML, errYAML := yaml.Marshal(c)
	asXML, errXML := xml.Marshal(s)
	if errJSON != nil || errYAML != nil || errXML != nil {
		t.Fatal(errJSON, errYAML, errXML)
	}
	out.Write(asJSON)
	out.Write(asYAML)
	out.Write(asXML)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "secret", s, "config", c)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "secret", s, "config", c)
	if text := out.String(); strings.Contains(text, canary) || strings.Contains(text, fmt.Sprintf("%x", canary)) {
		t.Errorf("the secret shows:\n%s", text)
	}
	for text, want := range map[string]string{fmt.Sprint(s): "<secret>", fmt.Sprintf("%#v", s): `config.Secret("<secret>")`, fmt.Sprint(Secret("")): ""} {
		if text != want {
			t.Errorf("got %s, want %s", text, want)
		}
	}
}

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"redis://127.0.0.1:6379/0":                                 "redis://127.0.0.1:6379/0",
		"redis://user:sk_canary@h:1/0":                             "redis://user:<secret>@h:1/0",
		"redis://:sk_canary@h:1":                                   "redis://:<secret>@h:1",
		"redis://sk_canary@h:1":                                    "redis://<secret>@h:1",
		"redis://u:sk_canary/?#@sk_canary@h:1":                     "redis://u:<secret>@h:1",
		"redis-sentinel://u:sk_canary@a:1,b:2/0?master=m&tls=true": "redis-sentinel://u:<secret>@a:1,b:2/0?master=m&tls=true",
		"redis-socket:///run/redis.sock?db=0&password=sk_canary":   "redis-socket:///run/redis.sock?db=0&password=<secret>",
		"u:sk_canary@h:1":                                          "u:<secret>@h:1",
		"https://api.example.com/?api_key=sk_canary&x=1":           "https://api.example.com/?api_key=<secret>&x=1",
		"embedded": "embedded",
		"":         "",
	} {
		if got := RedactURL(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}
