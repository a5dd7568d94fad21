package doctor

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/testkit"
)

func TestOwnAuthorityAndCertificate(t *testing.T) {
	t.Parallel()
	theirs, ours := testkit.NewAuthority(t), testkit.NewAuthority(t)
	var calls atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	srv.TLS, srv.Config.ErrorLog = theirs.Server(ours), log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	at := strings.NewReplacer("OURS", ours.Files("us", 1000*time.Hour), "SOON", ours.Files("us", 30*time.Hour), "OVER", ours.Files("us", -time.Hour), "THEIRS", theirs.Files("them", 1000*time.Hour))
	bare := at.Replace("OURS/us.key")
	for name, c := range map[string]struct {
		tls, check    string
		level         Level
		message, hint string
	}{
		"well":            {"{ca: THEIRS/ca.pem, cert: OURS/us.pem, key: OURS/us.key}", "tls", OK, "valid for", ""},
		"other authority": {"{ca: OURS/ca.pem}", "tls", Fail, at.Replace("no authority in OURS/ca.pem vouches"), "the system's don't count"},
		"system's":        {"{cert: OURS/us.pem, key: OURS/us.key}", "tls", Fail, "no trusted authority has signed", "request.tls.ca"},
		"no certificate":  {"{ca: THEIRS/ca.pem}", "tls", Fail, "asks for a client certificate, and calls show none", "request.tls.cert and key"},
		"not accepted":    {"{ca: THEIRS/ca.pem, cert: THEIRS/them.pem, key: THEIRS/them.key}", "tls", Fail, "does not accept the certificate", "ask those who run"},
		"ends soon":       {"{ca: THEIRS/ca.pem, cert: SOON/us.pem, key: SOON/us.key}", "certificate", Warn, "1 more days", "SIGHUP"},
		"has ended":       {"{ca: THEIRS/ca.pem, cert: OVER/us.pem, key: OVER/us.key}", "certificate", Fail, "has expired", "SIGHUP"},
		"key open to all": {"{ca: THEIRS/ca.pem, cert: OURS/us.pem, key: OURS/us.key}", "certificate", Warn, "may read the private key " + bare, "chmod o-r " + bare},
	} {
		if err := os.Chmod(bare, map[bool]os.FileMode{true: 0o644, false: 0o640}[name == "key open to all"]); err != nil {
			t.Fatal(err)
		}
		p := newPatient(t, "redis://127.0.0.1:1/0", fmt.Sprintf("request: {url: %q, tls: %s}", srv.URL, at.Replace(c.tls)), limits)
		var r Report
		t.Run(name, func(t *testing.T) { // a gateway on a busy machine may refuse a certificate later than doctor waits for that
			testkit.Eventually(t, time.Minute, c.message, func() bool { r = p.examine(); return has(r, c.check, c.level, c.message, c.hint) })
		})
		if name == "well" && strings.Contains(list(r), "private key") {
			t.Errorf("a key that the group may read is not a fault:\n%s", list(r))
		}
	}
	if calls.Load() > 0 {
		t.Error("the gateway was called")
	}
}

// If the files of request.tls can't be read, doctor says so and makes the other checks.
func TestFilesOfTLSThatCantBeRead(t *testing.T) {
	t.Parallel()
	text := []byte("gateways:\n  g:\n    request: {url: \"https://127.0.0.1:1/\", tls: {ca: away.pem}}\n    leak: {limits: [1/s]}\n")
	cfg, err := config.Parse("d.yaml", text, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, unset := config.Parse("d.yaml", text, config.Options{Secrets: true})
	p := &patient{t, Params{Config: cfg, Gateways: cfg.Gateways, Unset: unset}}
	r := p.examine()
	expect(t, r, "secrets", Fail, `"away.pem" can't be read`, "run doctor as the user")
	expect(t, r, "reach", Warn, "not tried: the files of request.tls were not read", "secrets above")
}

func TestTheWayLeadsThroughTheProxy(t *testing.T) {
	t.Parallel()
	theirs := testkit.NewAuthority(t)
	srv := httptest.NewUnstartedServer(nil)
	srv.TLS = theirs.Server(nil)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	proxy := func(answer string) string { // one that leads everybody to the server
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		go func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			in := bufio.NewReader(c)
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			out, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				return
			}
			defer out.Close()
			_, _ = io.WriteString(c, answer+"\r\n\r\n")
			go func() { _, _ = io.Copy(out, in) }()
			_, _ = io.Copy(c, out)
		}()
		return ln.Addr().String()
	}
	dead := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
	for name, c := range map[string]struct {
		proxy, check  string
		level         Level
		message, hint string
	}{
		"well":     {proxy("HTTP/1.1 200 OK"), "tls", Fail, "is not for pay.invalid", "request.url"}, // so it came as far as the server
		"password": {proxy("HTTP/1.1 407 No"), "reach", Fail, "does not let us in (407)", "request.proxy"},
		"dead":     {dead, "reach", Fail, dead + " can't be reached", "request.proxy"},
	} {
		p := newPatient(t, "redis://127.0.0.1:1/0", fmt.Sprintf("request: {url: \"https://pay.invalid/\", proxy: \"http://u:sk_canary@%s\", tls: {ca: %s/ca.pem}}",
			c.proxy, theirs.Files("them", time.Hour)), limits)
		r := p.examine()
		t.Run(name, func(t *testing.T) { expect(t, r, c.check, c.level, c.message, c.hint) })
		if strings.Contains(list(r), "sk_canary") {
			t.Errorf("the proxy's password shows:\n%s", list(r))
		}
	}
}
