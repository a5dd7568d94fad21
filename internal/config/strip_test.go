package config

import (
	"slices"
	"strings"
	"testing"
)

func TestStrip(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"strip: [account, to.region]": {"account", "to.region"},
		"strip: []":                   nil,
		"method: PUT":                 nil,
		"strip: [key.x]\n      key: {in: header, name: key}": {"key.x"},
		"strip: [keys]\n      key: {in: body, name: key}":    {"keys"},
	} {
		if got := parse(t, withRequest(line)).Gateways[0].Request.Strip; !slices.Equal(got, want) {
			t.Errorf("%s: %q", line, got)
		}
	}
	for line, want := range map[string]string{
		"strip: account":                "f:6:14: gateways.stripe.request.strip: this is not a list: name the fields",
		"strip: [a..b]":                 `f:6:15: gateways.stripe.request.strip[0]: "a..b" is not a field`,
		"strip: [a, b, a]":              `request.strip[2]: "a" is there twice`,
		"strip: [a]\n      method: GET": "request.strip: a GET has no body that a field could be left out of",
		"strip: [head.key]\n      key: {in: body, name: head.key}":    `request.strip: "head.key" is left out of the body, and the idempotency key goes there as "head.key"`,
		"strip: [head]\n      key: {in: body, name: head.key}":        `request.strip: "head" is left out of the body, and the idempotency key goes there`,
		"strip: [head.key.id]\n      key: {in: body, name: head.key}": `request.strip: "head.key.id" is left out of the body, and the idempotency key goes there`,
	} {
		if got := faultsOf(t, withRequest(line), Options{}); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %v, want %s", line, got, want)
		}
	}
}
