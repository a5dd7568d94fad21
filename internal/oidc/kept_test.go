package oidc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// Logins of a command line are in one file that only its owner can read, one for each dispatcher.
func TestLoginsAreKept(t *testing.T) {
	t.Parallel()
	k := KeptIn(t.TempDir())
	if _, is, err := k.Of("https://a"); is || err != nil {
		t.Fatal(is, err)
	}
	for _, at := range []string{"https://a", "https://b", "https://a"} {
		if err := k.Keep(t.Context(), at, Saved{Device: Device{Issuer: "https://i", ClientID: "c"}, Token: "token of " + at, Refresh: "r", Ends: time.Unix(1, 0).UTC()}); err != nil {
			t.Fatal(err)
		}
		for path, mode := range map[string]os.FileMode{k.File(): 0o600, filepath.Dir(k.File()): 0o700 | os.ModeDir} {
			if info, err := os.Stat(path); err != nil || info.Mode() != mode {
				t.Errorf("%s: %v %v", path, info.Mode(), err)
			}
		}
	}
	if s, is, err := k.Of("https://a"); !is || err != nil || s.Token != "token of https://a" || s.Issuer != "https://i" || !s.Ends.Equal(time.Unix(1, 0)) {
		t.Errorf("%+v, %t, %v", s, is, err)
	}
	if err := k.Drop(t.Context(), "https://a"); err != nil {
		t.Fatal(err)
	}
	if _, is, _ := k.Of("https://a"); is {
		t.Error("it is still there")
	}
	if s, is, _ := k.Of("https://b"); !is || s.Token != "token of https://b" {
		t.Error("the other one is gone")
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(k.File()), "*")); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := os.WriteFile(k.File(), []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.Of("https://b"); err == nil || !strings.Contains(err.Error(), "delete it") || strings.Contains(err.Error(), "canary") {
		t.Error(err)
	}
}

// Commands that log in and out at the same time lose none of each other's logins, and no reader sees half a file.
func TestManyCommandsKeepLoginsAtOnce(t *testing.T) {
	t.Parallel()
	const commands = 24
	dir := t.TempDir()
	of := func(i int) string { return fmt.Sprint("https://", i) }
	if err := KeptIn(dir).Keep(t.Context(), "https://gone", Saved{Token: "t"}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range commands {
		all.Go(func() {
			k := KeptIn(dir)
			err := errors.Join(k.Keep(t.Context(), of(i), Saved{Token: strings.Repeat("t", 1000)}), k.Drop(t.Context(), "https://gone"))
			if s, is, no := k.Of(of(i)); err != nil || no != nil || !is || len(s.Token) != 1000 {
				t.Errorf("%d: %v %v, %t", i, err, no, is)
			}
		})
	}
	all.Wait()
	k := KeptIn(dir)
	left, err := k.read()
	if err != nil || len(left) != commands {
		t.Errorf("%d logins, want %d: %v", len(left), commands, err)
	}
	if info, err := os.Stat(k.File()); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// Several commands find the same login expired. One of them gets the next token, and uses the refresh token once. A command whose login was removed meanwhile gets none.
func TestOneCommandRenewsALogin(t *testing.T) {
	t.Parallel()
	i := testkit.NewIssuer(t)
	i.Grant(nil)
	var asked atomic.Int32
	i.Asked = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			asked.Add(1)
		}
		return false
	}
	dir, server := t.TempDir(), "https://a"
	old := Saved{Device: Device{Issuer: i.URL, ClientID: "spillway", Scopes: []string{"openid"}}, Token: "old", Refresh: "once", Ends: time.Now().Add(-time.Minute)}
	if err := KeptIn(dir).Keep(t.Context(), server, old); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if s, unkept, err := KeptIn(dir).Renew(t.Context(), server, time.Second); err != nil || unkept != nil || s.Token == "old" || s.Token == "" {
				t.Errorf("%+v %v %v", s, unkept, err)
			}
		})
	}
	all.Wait()
	if asked.Load() != 1 {
		t.Errorf("the provider was asked %d times", asked.Load())
	}
	if s, _, err := KeptIn(dir).Renew(t.Context(), "https://nobody", time.Second); err != nil || s.Token != "" {
		t.Errorf("%+v %v", s, err)
	}
}

// A command that keeps the lock of the logins for too long does not block others for ever.
func TestLoginsThatAreHeldAreWaitedFor(t *testing.T) {
	t.Parallel()
	k := KeptIn(t.TempDir())
	if err := k.Keep(t.Context(), "https://a", Saved{Token: "t"}); err != nil {
		t.Fatal(err)
	}
	unlock, err := k.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Drop(ctx, "https://a"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	unlock()
	if err := k.Drop(t.Context(), "https://a"); err != nil {
		t.Error(err)
	}
}

// A refusal of the provider ends with a message: too late, refused, not for this client, no device flow. The provider's own texts are not repeated.
func TestADeviceIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		device, token string
		status        int
		claims        map[string]any
		want          string
		kind          Kind
	}{
		"too late":            {token: `{"error":"expired_token"}`, status: 400, want: "the login was not completed in time", kind: Wrong},
		"refused":             {token: `{"error":"access_denied","error_description":"canary"}`, status: 400, want: "refused at the provider", kind: Wrong},
		"no such client":      {device: `{"error":"invalid_client"}`, status: 401, want: "invalid_client", kind: Wrong},
		"an error of its own": {device: `{"error":"<b>canary</b>"}`, status: 400, want: "HTTP 400", kind: Wrong},
		"for another client":  {claims: map[string]any{"aud": "other"}, want: "not for this client", kind: Wrong},
		"of another issuer":   {claims: map[string]any{"iss": "https://other"}, want: "not for this client", kind: Wrong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := testkit.NewIssuer(t)
			i.Grant(c.claims)
			i.Asked = func(w http.ResponseWriter, r *http.Request) bool {
				text := map[string]string{"/device": c.device, "/token": c.token}[r.URL.Path]
				if text == "" && r.URL.Path == "/device" {
					text = `{"device_code":"d","user_code":"ABCD","verification_uri":"https://i/device","expires_in":60,"interval":1}`
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(text))
					return true
				}
				if text != "" {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte(text))
				}
				return text != ""
			}
			d := Device{Issuer: i.URL, ClientID: "spillway", Scopes: []string{"openid"}}
			asked, err := d.Begin(t.Context())
			if err == nil {
				_, err = asked.Wait(t.Context())
			}
			if err == nil || kindOf(t, err) != c.kind || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
