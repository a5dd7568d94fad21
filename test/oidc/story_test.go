// Package oidc tries logins with a real OpenID provider, that of github.com/zitadel/oidc, with dispatchers and commands as real processes. It is a module of its own, so that
// the program does not depend on a provider: run it with `make oidc`.
package oidc

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"spillway/internal/testkit"
)

var build = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "spillway-oidc-"); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-C", "../..", "-o", dir+"/", "./cmd/dispatcher").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := build(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// rig is two dispatchers with one configuration and one Redis.
type rig struct {
	t        *testing.T
	bin, dir string
	urls     []string
	logs     []*testkit.Log
	cmds     []*exec.Cmd
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	var err error
	if r.bin, err = build(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.urls = append(r.urls, fmt.Sprintf("http://127.0.0.1:%d", testkit.FreePort(t)))
	}
	return r
}

// serve writes the configuration, and starts the dispatchers.
func (r *rig) serve(issuer string) {
	r.t.Helper()
	text := fmt.Sprintf("redis: %s\noidc:\n  issuer: %s\n  client_id: spillway\n  client_secret: %s\n  redirect: %s/login/callback\n  device_client_id: spillway-cli\n  roles:\n"+
		"    - {claim: groups, is: payments-ops, role: operator, gateways: [stripe]}\n    - {claim: groups, is: support, role: viewer}\n"+
		"tokens: [{name: billing, role: producer, secret: canary-token-of-billing}]\ngateways:\n"+
		"  stripe:\n    request: {url: \"http://127.0.0.1:9/\"}\n    leak: {limits: [1/s]}\n  adyen:\n    request: {url: \"http://127.0.0.1:8/\"}\n    leak: {limits: [1/s]}\n",
		testkit.Server(r.t).URL(), issuer, clientSecret, r.urls[0])
	if err := os.WriteFile(filepath.Join(r.dir, "dispatcher.yaml"), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	for _, at := range r.urls {
		cmd, log := r.command("run", "--listen", strings.TrimPrefix(at, "http://")), &testkit.Log{}
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			r.t.Fatal(err)
		}
		r.logs, r.cmds = append(r.logs, log), append(r.cmds, cmd)
		r.t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			err := cmd.Wait()
			if text := log.String(); err != nil || strings.Contains(text, "canary") || strings.Contains(text, "eyJ") || r.t.Failed() {
				r.t.Errorf("a dispatcher ended with %v:\n%s", err, text)
			}
		})
		testkit.Eventually(r.t, 60*time.Second, "a dispatcher", func() bool {
			got, err := http.Get(at + "/readyz")
			if err != nil {
				return false
			}
			_ = got.Body.Close()
			return got.StatusCode == http.StatusOK
		})
	}
}

func (r *rig) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(r.bin, "dispatcher"), args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+r.dir, "HOME="+r.dir, "XDG_CONFIG_HOME="+r.dir+"/config", "DISPATCHER_TOKEN=")
	return cmd
}

// afar runs a command through the first dispatcher.
func (r *rig) afar(env string, args ...string) (text string, code int) {
	r.t.Helper()
	cmd := r.command(append(args, "--server", r.urls[0])...)
	cmd.Env = append(cmd.Env, env)
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// browser returns a client that follows redirects and keeps cookies, as browsers do.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

// open opens a page, or with fields sends a form.
func open(t *testing.T, b *http.Client, at string, fields url.Values) (code int, where, text string) {
	t.Helper()
	var got *http.Response
	var err error
	if fields == nil {
		got, err = b.Get(at)
	} else {
		got, err = b.PostForm(at, fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, got.Request.URL.String(), string(body)
}

var hidden = regexp.MustCompile(`name="id" value="([^"]+)"`)

// logIn logs a person in at the console, through the provider's own pages.
func (r *rig) logIn(b *http.Client, who string) (code int, text string) {
	r.t.Helper()
	_, where, text := open(r.t, b, r.urls[0]+"/login/provider?next=/batches", nil)
	id := hidden.FindStringSubmatch(text)
	if id == nil {
		r.t.Fatalf("no form of the provider at %s: %s", where, text)
	}
	u, err := url.Parse(where)
	if err != nil {
		r.t.Fatal(err)
	}
	code, _, text = open(r.t, b, u.Scheme+"://"+u.Host+"/login/username", url.Values{"username": {who}, "password": {password}, "id": {id[1]}})
	return code, text
}

// People log in at the console with a real provider. All dispatchers accept the session of one, until its owner logs out.
func TestTheConsoleWithARealProvider(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	issuer, s, srv := realProvider(t, r.urls[0]+"/login/callback")
	r.serve(issuer)
	b := browser(t)
	if code, text := r.logIn(b, "ann"); code != http.StatusOK || !strings.Contains(text, `href="/batches"`) {
		t.Fatalf("%d %s", code, text)
	}
	for _, at := range r.urls {
		if code, _, text := open(t, b, at+"/", nil); code != http.StatusOK || !strings.Contains(text, "ann@example.com (operator)") || !strings.Contains(text, "stripe") || strings.Contains(text, "adyen") {
			t.Errorf("%s: %d %s", at, code, text)
		}
	}
	if code, _, text := open(t, b, r.urls[1]+"/gateways/stripe/pause", url.Values{"why": {"a try"}}); code != http.StatusOK {
		t.Errorf("pausing: %d %s", code, text)
	}
	if code, text := r.logIn(browser(t), "carl"); code != http.StatusForbidden || !strings.Contains(text, "you are logged in as carl@example.com, and nothing in the login gives you a role here") {
		t.Errorf("somebody without a role: %d %s", code, text)
	}
	s.use(newKey(t, "k2"), 5*time.Minute)
	testkit.Eventually(t, 60*time.Second, "a login with a new key", func() bool {
		code, _ := r.logIn(browser(t), "bob")
		return code == http.StatusOK
	})
	srv.CloseClientConnections()
	srv.Close()
	if code, _, text := open(t, b, r.urls[0]+"/", nil); code != http.StatusOK || !strings.Contains(text, "ann@example.com") {
		t.Errorf("a session while the provider is away: %d", code)
	}
	if code, _, _ := open(t, b, r.urls[0]+"/logout", url.Values{}); code != http.StatusOK {
		t.Errorf("logging out: %d", code)
	}
	if code, where, _ := open(t, b, r.urls[1]+"/v1/whoami", nil); code != http.StatusUnauthorized {
		t.Errorf("after logging out: %d at %s", code, where)
	}
}

var asks = regexp.MustCompile(`Open (\S+) and type in (\S+)`)

// device runs dispatcher login, and does in a browser what it asks for.
func (r *rig) device(who, action string) (text string, code int) {
	r.t.Helper()
	cmd, said, out := r.command("login", "--server", r.urls[0]), &testkit.Log{}, &bytes.Buffer{}
	cmd.Stderr, cmd.Stdout = said, out
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	var asked []string
	testkit.Eventually(r.t, 60*time.Second, "the code", func() bool { asked = asks.FindStringSubmatch(said.String()); return asked != nil })
	b := browser(r.t)
	if code, _, text := open(r.t, b, asked[1]+"/login", url.Values{"user_code": {asked[2]}, "username": {who}, "password": {password}}); code != http.StatusOK {
		r.t.Fatalf("%d %s", code, text)
	}
	if code, _, text := open(r.t, b, asked[1]+"/confirm?action="+action, nil); code != http.StatusOK {
		r.t.Fatalf("%d %s", code, text)
	}
	_ = cmd.Wait()
	return out.String() + said.String(), cmd.ProcessState.ExitCode()
}

// The command line logs in on another device. Commands use that login, which is renewed, until it is removed. A token takes precedence.
func TestTheCommandLineWithARealProvider(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	issuer, s, _ := realProvider(t, r.urls[0]+"/login/callback")
	r.serve(issuer)
	if text, code := r.afar("", "status"); code != 2 || !strings.Contains(text, "dispatcher login") {
		t.Fatalf("before: %d %s", code, text)
	}
	if text, code := r.device("ann", "denied"); code != 2 || !strings.Contains(text, "refused at the provider") {
		t.Errorf("refused there: %d %s", code, text)
	}
	if text, code := r.device("carl", "allowed"); code != 2 || !strings.Contains(text, "nothing in the login gives you a role here") {
		t.Errorf("without a role: %d %s", code, text)
	}
	s.use(s.key, 20*time.Second) // so that each command renews it
	if text, code := r.device("ann", "allowed"); code != 0 || !strings.Contains(text, "logged in as ann@example.com: operator for stripe") {
		t.Fatalf("%d %s", code, text)
	}
	file := filepath.Join(r.dir, "config/spillway/logins.json")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	was, _ := os.ReadFile(file)
	if text, code := r.afar("", "status"); code != 0 || !strings.Contains(text, "stripe") || strings.Contains(text, "adyen") {
		t.Errorf("%d %s", code, text)
	}
	if is, _ := os.ReadFile(file); bytes.Equal(was, is) {
		t.Error("the login was not renewed")
	}
	if text, code := r.afar("", "pause", "-g", "stripe", "--why", "a try"); code != 0 {
		t.Errorf("%d %s", code, text)
	}
	if text, code := r.afar("", "dlq", "history", "-o", "json"); code != 0 || !strings.Contains(text, `"who":"ann@example.com"`) || !strings.Contains(text, `"via":"oidc"`) {
		t.Errorf("the trail: %d %s", code, text)
	}
	if text, code := r.afar("DISPATCHER_TOKEN=canary-token-of-billing", "status"); code != 2 || !strings.Contains(text, "has the role producer") {
		t.Errorf("a token goes before the login: %d %s", code, text)
	}
	if text, code := r.afar("", "logout"); code != 0 || strings.Contains(text, "warning") {
		t.Errorf("%d %s", code, text)
	}
	if text, code := r.afar("", "status"); code != 2 || !strings.Contains(text, "dispatcher login") {
		t.Errorf("after: %d %s", code, text)
	}
	if is, err := os.ReadFile(file); err != nil || strings.Contains(string(is), "eyJ") {
		t.Errorf("a login is left: %s, %v", is, err)
	}
}

// A dispatcher starts while the provider is away. It accepts tokens, and says why logins fail.
func TestTheProviderIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(fmt.Sprintf("http://127.0.0.1:%d", testkit.FreePort(t)))
	if text, code := r.afar("DISPATCHER_TOKEN=canary-token-of-billing", "job", "none"); code != 4 {
		t.Errorf("a token: %d %s", code, text)
	}
	if code, _, text := open(t, browser(t), r.urls[0]+"/login/provider", nil); code != http.StatusServiceUnavailable || !strings.Contains(text, "can&#39;t be asked") {
		t.Errorf("the console: %d %s", code, text)
	}
	if text, code := r.afar("", "login"); code != 5 || !strings.Contains(text, "can't be asked") {
		t.Errorf("the command line: %d %s", code, text)
	}
	testkit.Eventually(t, 30*time.Second, "the log to say so", func() bool { return strings.Contains(r.logs[0].String(), "payments and tokens go on") })
}
