package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/oidc"
	"spillway/internal/remote"
)

// renewAhead is how long before its expiry a login's token is renewed.
const renewAhead = 30 * time.Second

func loginCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "login", Short: "Log in at a dispatcher with its OpenID provider",
		Long: `Login logs you in with the OpenID provider of the dispatcher named by --server, in a browser on this or
another device. Later commands with the same --server use that login, which is renewed until the provider
ends it. It is stored in a file that only you can read. $DISPATCHER_TOKEN and --token-file take precedence.`,
		Example: "  dispatcher login --server https://dispatcher.example:8080",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return coded(p.login(cmd.Context())) },
	}
}

func logoutCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "Forget the login at a dispatcher",
		Example: "  dispatcher logout --server https://dispatcher.example:8080",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return coded(p.logout(cmd.Context())) },
	}
}

// coded gives a login error its exit code.
func coded(err error) error {
	e, is := errors.AsType[*oidc.Error](err)
	if !is {
		return err
	}
	code := job.CodeUsage
	if e.Kind == oidc.Away {
		code = job.CodeUnavailable
	}
	return &job.Error{Code: code, Message: e.Message, Hint: e.Hint, Err: e.Err}
}

// kept returns the stored logins of the current user.
func kept() (oidc.Kept, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return oidc.Kept{}, &job.Error{Code: job.CodeFailed, Message: "there is no place for your logins", Err: err, Hint: "set $HOME or $XDG_CONFIG_HOME, or put a token into $" + tokenVariable}
	}
	return oidc.KeptIn(dir), nil
}

// loginAt returns the dispatcher's name in the file of logins.
func (p *program) loginAt() (string, error) {
	if p.server == "" {
		return "", cli.Usage("name the dispatcher with --server URL or $"+serverVariable, "there is no dispatcher to log in at")
	}
	there, err := remote.NewThere(p.server, "")
	if err != nil {
		return "", err
	}
	there.Close()
	return strings.TrimSuffix(p.server, "/"), nil
}

func (p *program) login(ctx context.Context) error {
	server, err := p.loginAt()
	if err != nil {
		return err
	}
	all, err := kept()
	if err != nil {
		return err
	}
	var how httpapi.HowToLogIn
	if err := p.get(ctx, "/v1/login", "", &how); err != nil {
		return err
	}
	if how.Issuer == "" {
		return cli.Usage("put a token into $"+tokenVariable, "the dispatcher at %s has no logins with an OpenID provider", server)
	}
	p.warnOfTheWay("that of the login")
	asked, err := oidc.Device{Issuer: how.Issuer, ClientID: how.ClientID, Scopes: how.Scopes}.Begin(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Say(), "The dispatcher at %s has you log in with %s, as its client %s.\nOpen %s and type in %s\n", server, how.Issuer, how.ClientID, asked.At, asked.Code)
	if asked.Whole != "" {
		fmt.Fprintf(p.Say(), "or open %s and see that it shows that code.\n", asked.Whole)
	}
	login, err := asked.Wait(ctx)
	if err != nil {
		return err
	}
	var who httpapi.Whoami
	if err := p.get(ctx, "/v1/whoami", login.Token, &who); err != nil {
		return err
	}
	if err := all.Keep(ctx, server, login); err != nil {
		return &job.Error{Code: job.CodeFailed, Message: "the login could not be kept", Err: err}
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, who)
	}
	where := ""
	if len(who.Gateways) > 0 {
		where = " for " + strings.Join(who.Gateways, ", ")
	}
	fmt.Fprintf(p.Tell(), "logged in as %s: %s%s\n", who.Name, who.Role, where)
	return nil
}

func (p *program) logout(ctx context.Context) error {
	server, err := p.loginAt()
	if err != nil {
		return err
	}
	all, err := kept()
	if err != nil {
		return err
	}
	login, is, err := all.Of(server)
	if err != nil {
		return &job.Error{Code: job.CodeFailed, Message: "the logins can't be read", Err: err}
	}
	if !is {
		fmt.Fprintf(p.Err, "not logged in at %s\n", server)
		return nil
	}
	if err := all.Drop(ctx, server); err != nil {
		return &job.Error{Code: job.CodeFailed, Message: "the login could not be forgotten", Err: err}
	}
	if err := login.Revoke(ctx); err != nil {
		fmt.Fprintf(p.Say(), "warning: it is forgotten here, and goes on at the provider until it ends: %v\n", err)
	}
	if !p.Quiet {
		fmt.Fprintf(p.Err, "logged out at %s\n", server)
	}
	return nil
}

// loggedIn returns the token of the login at --server; empty if there is none. It renews one that is about to
// expire.
func (p *program) loggedIn(ctx context.Context) (string, error) {
	all, err := kept()
	if err != nil {
		return "", nil // without a home directory there is no login
	}
	server := strings.TrimSuffix(p.server, "/")
	login, is, err := all.Of(server)
	if err != nil {
		return "", &job.Error{Code: job.CodeFailed, Message: "the logins can't be read", Err: err}
	}
	if !is || time.Until(login.Ends) > renewAhead {
		return login.Token, nil
	}
	next, unkept, err := all.Renew(ctx, server, renewAhead)
	if err != nil {
		if now, is, _ := all.Of(server); is && now.Token != login.Token { // another command was faster, on a system without file locks
			return now.Token, nil
		}
		if time.Until(login.Ends) > 0 {
			return login.Token, nil
		}
		return "", err
	}
	if unkept != nil {
		fmt.Fprintf(p.Say(), "warning: the login could not be kept, and may have to be begun again: %v\n", unkept)
	}
	return next.Token, nil
}

// get requests one document from a dispatcher.
func (p *program) get(ctx context.Context, path, token string, to any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.server, "/")+path, nil)
	if err != nil {
		return err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	got, err := client.Do(r)
	if err != nil {
		return &job.Error{Code: job.CodeUnavailable, Message: "the dispatcher at " + p.server + " can't be reached", Err: errors.Unwrap(err), Hint: "is it running, and is the address right?"}
	}
	defer got.Body.Close()
	text, err := io.ReadAll(io.LimitReader(got.Body, job.MaxLine))
	var no struct{ Detail, Hint string }
	switch {
	case err == nil && got.StatusCode == http.StatusOK && json.Unmarshal(text, to) == nil:
		return nil
	case json.Unmarshal(text, &no) == nil && no.Detail != "" && got.StatusCode != http.StatusNotFound:
		return cli.Usage(no.Hint, "%s", no.Detail)
	}
	return &job.Error{Code: job.CodeUnavailable, Message: "what answers at " + p.server + " is not a dispatcher that this program can work with", Hint: "look for another address, a proxy in between, or a dispatcher of another version"}
}
