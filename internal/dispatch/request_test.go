package dispatch

import (
	"fmt"
	"testing"

	"spillway/internal/config"
	"spillway/internal/gateway"
)

// What is wrong with a request is said when the file is read, with its line: what the file may say, calls can be made of.
func TestWhatTheFileMaySayOfARequestCanBeCalled(t *testing.T) {
	t.Parallel()
	for request, may := range map[string]bool{
		`url: "https://x.example"`:                                                     true,
		`url: "https://x.example?id={id}"`:                                             true,
		`url: "https://x.example/{payload.a.b}?id={id}"`:                               true,
		`url: "https://[::1]:8443/v1/{id}"`:                                            true,
		`url: "https://x.example{id}/"`:                                                false,
		`url: "https://user:secret@x.example/"`:                                        false,
		`url: "HTTPS://x.example/"`:                                                    false,
		`url: "https://x.example/", sign: {header: S, secret: "", content: "{body}"}`:  false,
		`url: "https://x.example/", sign: {header: S, secret: "a", content: "{body}"}`: true,
	} {
		checkRequest(t, request, may)
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		checkRequest(t, `url: "https://x.example/", method: `+method, true)
	}
	for _, method := range []string{"HEAD", "OPTIONS", "CONNECT", "TRACE"} {
		checkRequest(t, `url: "https://x.example/", method: `+method, false)
	}
	for name, may := range map[string]bool{"X-Own": true, "User-Agent": true, "Content-Type": true, "Accept": true, "Accept-Encoding": false, "Connection": false,
		"Content-Length": false, "Expect": false, "Keep-Alive": false, "Proxy-Connection": false, "TE": false, "Trailer": false, "Transfer-Encoding": false, "Upgrade": false} {
		checkRequest(t, fmt.Sprintf(`url: "https://x.example/", headers: {%s: a}`, name), may)
		checkRequest(t, fmt.Sprintf(`url: "https://x.example/", idempotency_header: %s`, name), may)
	}
}

func checkRequest(t *testing.T, request string, may bool) {
	t.Helper()
	cfg, err := config.Parse("x.yaml", []byte("gateways:\n  g:\n    request: {"+request+"}\n    leak: {limits: [1/s]}\n"), config.Options{Secrets: true})
	if (err == nil) != may {
		t.Errorf("%s: %v", request, err)
	}
	if err != nil {
		return
	}
	how, err := callConfig(cfg.Gateways[0])
	if err == nil {
		_, err = gateway.New(how)
	}
	if err != nil {
		t.Errorf("%s is allowed in the file, and refused by the call: %v", request, err)
	}
}
