package queue

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// cancelChannel is where asynq hears that somebody wants a task to be cancelled. A call that is under way is never cancelled here, so there is
// nothing to hear, and each asynq server would keep a connection for it, with a ping every three seconds.
const cancelChannel = "asynq:cancel"

// unheard begins what asynq says of a subscription that came to nothing: it says so of this one, at the end.
const unheard = "cannot subscribe to cancelation channel"

var errUnheard = errors.New("nobody listens for cancellations")

// Subscribe gives asynq a subscription to cancellations when it is to end, which comes to nothing then, and passes on all else.
func (c *consumer) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	if !slices.Equal(channels, []string{cancelChannel}) {
		return c.UniversalClient.Subscribe(ctx, channels...)
	}
	<-c.stop.Done()
	deaf := redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // else it looks its address up
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return nil, errUnheard }})
	defer deaf.Close()
	return deaf.Subscribe(ctx, channels...)
}

func isUnheard(text string) bool { return strings.HasPrefix(text, unheard) }
