package oidc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// LooksLike reports whether a text has the form of a provider's signed token.
func LooksLike(token string) bool {
	return strings.Count(token, ".") == 2 && strings.HasPrefix(token, "ey")
}

// Check returns the login of a provider's token, an id token or an access token. The error is an *Error.
func (p *Provider) Check(ctx context.Context, token string) (Login, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	got, err := p.verify(ctx, token, append([]string{p.cfg.ClientID, p.cfg.DeviceClientID}, p.cfg.Audiences...)...)
	if err != nil {
		return Login{}, err
	}
	return p.login(got)
}

// verify checks issuer, audience and expiry of a token.
func (p *Provider) verify(ctx context.Context, token string, audiences ...string) (*oidc.IDToken, error) {
	f, err := p.state(ctx)
	if err != nil {
		return nil, err
	}
	keys := &keys{of: f}
	got, err := oidc.NewVerifier(p.cfg.Issuer, keys, &oidc.Config{SkipClientIDCheck: true, // checked below, for several audiences
		SupportedSigningAlgs: algorithms, Now: func() time.Time { return p.now().Add(-skew) }}).Verify(ctx, token)
	if keys.away != nil {
		return nil, p.away(keys.away)
	}
	if ended, is := errors.AsType[*oidc.TokenExpiredError](err); is {
		return nil, &Error{Kind: Wrong, Message: "the login has ended", Hint: "log in again: dispatcher login, or at the console", Err: ended}
	}
	if err == nil && !slices.ContainsFunc(got.Audience, func(one string) bool { return one != "" && slices.Contains(audiences, one) }) {
		err = errors.New("it is made for another audience")
	}
	if err == nil && got.Subject == "" {
		err = errors.New("it does not say whose it is")
	}
	if err != nil {
		return nil, &Error{Kind: Wrong, Message: "the token is none that the OpenID provider made for this dispatcher", Hint: "log in again", Err: err}
	}
	return got, nil
}

// keys are the provider's keys; it remembers whether they could be read.
type keys struct {
	of   *found
	away error
}

// unread is part of the library's error if it could not read the keys. It has no type for that; a test guards
// the text.
const unread = "fetching keys"

// VerifySignature implements oidc.KeySet.
func (k *keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.of.keys.VerifySignature(ctx, token)
	if err == nil || !strings.HasPrefix(err.Error(), unread) {
		return payload, err
	}
	if k.of.before != nil {
		if payload, again := k.of.before.VerifySignature(ctx, token); again == nil {
			return payload, nil
		}
	}
	k.away = err
	return nil, err
}
