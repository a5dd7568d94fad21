package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"spillway/internal/access"
	"spillway/internal/config"
	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/outcome"
)

// errNoToken makes a job go back to the queue uncalled.
var errNoToken = fmt.Errorf("there is no access token: %w", job.ErrLocal)

func granting(o config.OAuth2) gateway.OAuth2 {
	if !o.On {
		return gateway.OAuth2{}
	}
	return gateway.OAuth2{TokenURL: o.TokenURL.Reveal(), ClientID: o.ClientID, ClientSecret: o.ClientSecret.Reveal(), Scope: o.Scope, Audience: o.Audience,
		InBody: o.Auth == config.AuthBody}
}

// keeper returns the keeper of a gateway's access token; nil if its calls carry none.
func (u *unit) keeper(g config.Gateway, how gateway.Config) (*access.Keeper, error) {
	if !g.Request.OAuth2.On {
		return nil, nil
	}
	endpoint, err := gateway.NewTokens(how)
	if err != nil {
		return nil, err
	}
	o := how.OAuth2
	return access.New(access.Config{
		Gateway: g.Name, Redis: u.redis, Box: Box(g), Credentials: fmt.Sprintf("%q", []string{o.TokenURL, o.ClientID, o.ClientSecret, o.Scope, o.Audience}),
		Fetch: fetcher{endpoint, g.Hold.Max}.fetch, Within: endpoint.Within(), Backoff: g.Circuit.Max,
		Metrics: u.tools.access, Log: u.log,
	}), nil
}

// fetcher requests tokens from a token endpoint for an access.Keeper.
type fetcher struct {
	endpoint *gateway.Tokens
	most     time.Duration // the longest pause that an answer can ask for
}

func (f fetcher) fetch(ctx context.Context) (access.Answer, error) {
	token, life, err := f.endpoint.Fetch(ctx)
	a := access.Answer{Token: token, Life: life, Local: errors.Is(err, job.ErrLocal)}
	if no, ok := errors.AsType[*gateway.Denial](err); ok {
		a.Refused = no.Status/100 != 5 && no.Status != http.StatusRequestTimeout
		if no.Status == http.StatusTooManyRequests || no.Status == http.StatusServiceUnavailable {
			a.Wait, _ = outcome.HoldHint(no.Header, no.Status, time.Now(), f.most)
		}
	}
	return a, err
}
