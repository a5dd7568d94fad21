package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Device logs in the command line: the person logs in with a browser, on any device (RFC 8628).
type Device struct {
	// Issuer is the provider's address, ClientID the command line's client id, and Scopes the requested scopes.
	Issuer, ClientID string
	Scopes           []string
}

// Saved is a login of the command line.
type Saved struct {
	Device
	// Token is the id token, and Refresh the token to renew it; empty: it can't be renewed.
	Token   string
	Refresh string
	// Ends is when Token expires.
	Ends time.Time
}

// Asked is what a person has to do.
type Asked struct {
	// At is the address to open, and Code the code to enter there. Whole includes the code; empty: the provider
	// has no such address.
	At, Code, Whole string
	// Ends is the deadline.
	Ends time.Time

	device Device
	config *oauth2.Config
	got    *oauth2.DeviceAuthResponse
	check  func(context.Context, string) (*oidc.IDToken, error)
	client *http.Client
}

// offline is the scope that makes a provider issue refresh tokens.
const offline = "offline_access"

// client returns the HTTP client for requests to a provider.
func (d Device) client() *http.Client {
	return &http.Client{Timeout: 2 * within, Transport: bounded{http.DefaultTransport}, CheckRedirect: stay}
}

// reach returns the provider's OAuth 2 client, its description, and a function that checks its id tokens.
func (d Device) reach(ctx context.Context) (*oauth2.Config, description, func(context.Context, string) (*oidc.IDToken, error), error) {
	ctx = oidc.ClientContext(ctx, d.client())
	provider, err := oidc.NewProvider(ctx, d.Issuer)
	if err != nil {
		return nil, description{}, nil, d.away(err)
	}
	said, err := described(provider, d.Issuer)
	if err != nil {
		return nil, said, nil, d.away(err)
	}
	c := &oauth2.Config{ClientID: d.ClientID, Endpoint: provider.Endpoint(), Scopes: d.Scopes}
	c.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	if slices.Contains(said.Scopes, offline) && !slices.Contains(d.Scopes, offline) {
		c.Scopes = append(slices.Clone(d.Scopes), offline)
	}
	return c, said, provider.Verifier(&oidc.Config{ClientID: d.ClientID, SupportedSigningAlgs: algorithms}).Verify, nil
}

func (d Device) away(err error) *Error {
	return &Error{Kind: Away, Message: "the OpenID provider " + d.Issuer + " can't be asked", Hint: "can this machine reach it?", Err: cleanedOf(err)}
}

// cleanedOf removes addresses with a query from an error.
func cleanedOf(err error) error {
	if e, is := errors.AsType[*url.Error](err); is {
		return e.Err
	}
	return err
}

// Begin asks the provider what the person has to do. The error is an *Error.
func (d Device) Begin(ctx context.Context) (*Asked, error) {
	c, said, check, err := d.reach(ctx)
	if err != nil {
		return nil, err
	}
	if said.Device == "" {
		return nil, wrong("the OpenID provider "+d.Issuer+" has no device flow", "put a token of its into $DISPATCHER_TOKEN", nil)
	}
	client := d.client()
	got, err := c.DeviceAuth(context.WithValue(ctx, oauth2.HTTPClient, client))
	if err != nil {
		return nil, d.refused(err)
	}
	return &Asked{At: got.VerificationURI, Code: got.UserCode, Whole: got.VerificationURIComplete, Ends: got.Expiry, device: d, config: c, got: got, check: check, client: client}, nil
}

// Wait waits until the person has logged in or declined, or the deadline has passed. The error is an *Error, or
// that of ctx.
func (a *Asked) Wait(ctx context.Context) (Saved, error) {
	got, err := a.config.DeviceAccessToken(context.WithValue(ctx, oauth2.HTTPClient, a.client), a.got)
	switch {
	case err == nil:
		return a.device.saved(ctx, got, a.check)
	case ctx.Err() != nil:
		return Saved{}, ctx.Err()
	case !a.Ends.IsZero() && !time.Now().Before(a.Ends):
		// A question that was out at the deadline is cut off by it. That is no fault of the provider.
		return Saved{}, wrong("the login was not completed in time", "run it again", nil)
	}
	return Saved{}, a.device.refused(err)
}

// saved returns the login in an answer of the token endpoint.
func (d Device) saved(ctx context.Context, got *oauth2.Token, check func(context.Context, string) (*oidc.IDToken, error)) (Saved, error) {
	token, _ := got.Extra("id_token").(string)
	if token == "" {
		return Saved{}, wrong("the OpenID provider gave no id token", "does its client have the scope openid?", nil)
	}
	is, err := check(ctx, token)
	if err != nil {
		return Saved{}, wrong("the OpenID provider gave an id token that is not for this client", "is this machine's clock right?", err)
	}
	return Saved{Device: d, Token: token, Refresh: got.RefreshToken, Ends: is.Expiry}, nil
}

// refused returns the error for a refusal, without the answer's text.
func (d Device) refused(err error) *Error {
	said, is := errors.AsType[*oauth2.RetrieveError](err)
	if !is {
		return d.away(err)
	}
	reason := said.ErrorCode
	if !errorCode.MatchString(reason) {
		reason = "HTTP " + said.Response.Status
	}
	switch reason {
	case "access_denied":
		return wrong("the login was refused at the provider", "run it again", nil)
	case "expired_token":
		return wrong("the login was not completed in time", "run it again", nil)
	case "invalid_grant":
		return wrong("the login has ended", "log in again: dispatcher login", nil)
	}
	return wrong("the OpenID provider says no: "+reason, "may its client "+d.ClientID+" use the device flow, without a secret?", nil)
}

// Again returns the login with a renewed token. Its error is an *Error; with kind Wrong, the person has to log
// in again.
func (s Saved) Again(ctx context.Context) (Saved, error) {
	if s.Refresh == "" {
		return s, wrong("the login has ended", "log in again: dispatcher login", nil)
	}
	c, _, check, err := s.reach(ctx)
	if err != nil {
		return s, err
	}
	got, err := c.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, s.client()), &oauth2.Token{RefreshToken: s.Refresh}).Token()
	if err != nil {
		return s, s.refused(err)
	}
	return s.saved(ctx, got, check)
}

// Revoke revokes the refresh token.
func (s Saved) Revoke(ctx context.Context) error {
	if s.Refresh == "" {
		return nil
	}
	_, said, _, err := s.reach(ctx)
	if err != nil {
		return err
	}
	if said.Revoke == "" {
		return wrong("the OpenID provider can't be told to forget it", "", nil)
	}
	form := url.Values{"token": {s.Refresh}, "token_type_hint": {"refresh_token"}, "client_id": {s.ClientID}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, said.Revoke, strings.NewReader(form.Encode()))
	if err != nil {
		return s.away(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	got, err := s.client().Do(r)
	if err != nil {
		return s.away(err)
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		return wrong("the OpenID provider did not forget it: HTTP "+got.Status, "", nil)
	}
	return nil
}

const (
	// lockedFor is how long another command may hold the lock: it may ask the provider twice.
	lockedFor = 30 * time.Second
	// lockAgain is the pause between two tries to get the lock.
	lockAgain = 20 * time.Millisecond
)

// Kept are a user's command-line logins, by dispatcher address, in a file that only that user can read.
type Kept struct{ file string }

// KeptIn returns the logins in a directory of user settings.
func KeptIn(dir string) Kept { return Kept{filepath.Join(dir, "spillway", "logins.json")} }

// File returns the path of the file.
func (k Kept) File() string { return k.file }

// Of returns the login at a dispatcher, and whether there is one.
func (k Kept) Of(server string) (s Saved, is bool, err error) {
	all, err := k.read()
	s, is = all[server]
	return s, is, err
}

// Keep stores a login, replacing an earlier one.
func (k Kept) Keep(ctx context.Context, server string, s Saved) error {
	return k.change(ctx, func(all map[string]Saved) { all[server] = s })
}

// Drop removes a login.
func (k Kept) Drop(ctx context.Context, server string) error {
	return k.change(ctx, func(all map[string]Saved) { delete(all, server) })
}

// Renew returns the login at a dispatcher, and renews it if it expires within ahead. Of several concurrent
// commands, one asks the provider and the others use its result: a refresh token is valid once, and some
// providers end the whole login if it is used twice. unkept is why the result could not be stored. If there is
// no login, s is empty. The error is an *Error, or that the logins can't be read.
func (k Kept) Renew(ctx context.Context, server string, ahead time.Duration) (s Saved, unkept, err error) {
	unlock, err := k.lock(ctx)
	if err != nil {
		return s, nil, err
	}
	defer unlock()
	all, err := k.read()
	s, is := all[server]
	if err != nil || !is || time.Until(s.Ends) > ahead {
		return s, nil, err
	}
	next, err := s.Again(ctx)
	if err != nil {
		return s, nil, err
	}
	all[server] = next
	return next, k.write(all), nil
}

func (k Kept) read() (all map[string]Saved, err error) {
	text, err := os.ReadFile(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(text, &all) != nil {
		return nil, errors.New(k.file + " can't be read: delete it, and log in again")
	}
	return all, nil
}

// change reads, changes and writes the logins under the lock.
func (k Kept) change(ctx context.Context, do func(map[string]Saved)) error {
	if err := os.MkdirAll(filepath.Dir(k.file), 0o700); err != nil {
		return err
	}
	unlock, err := k.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := k.read()
	if err != nil {
		return err
	}
	if all == nil {
		all = map[string]Saved{}
	}
	do(all)
	return k.write(all)
}

// lock locks the logins until unlock is called or the process ends. A directory that can't be locked, as on
// some network file systems, is used without a lock.
func (k Kept) lock(ctx context.Context) (unlock func(), err error) {
	dir, err := os.Open(filepath.Dir(k.file))
	if err != nil {
		return func() {}, nil // the next step reports what is wrong with it
	}
	for until := time.Now().Add(lockedFor); held(dir); {
		if time.Now().After(until) {
			return nil, errors.Join(fmt.Errorf("another dispatcher command has had %s for %s: try again", k.file, lockedFor), dir.Close())
		}
		select {
		case <-time.After(lockAgain):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), dir.Close())
		}
	}
	return func() { _ = dir.Close() }, nil // closing it releases the lock
}

// write writes a new file and renames it over the old one, so that it is never incomplete or readable for
// others.
func (k Kept) write(all map[string]Saved) error {
	to, err := os.CreateTemp(filepath.Dir(k.file), ".logins-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(to.Name()) // fails if all went well
	_, err = to.Write(marshal(all))
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return err
	}
	return os.Rename(to.Name(), k.file)
}
