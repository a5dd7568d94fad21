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

// cancelChannel is the channel on which asynq listens for tasks to be cancelled. Spillway never cancels a call
// in flight, so there is nothing to listen for. Each asynq server would keep a connection for it, with a ping
// every three seconds.
const cancelChannel = "asynq:cancel"

// unheard is the prefix of asynq's message about a failed subscription. asynq logs it for this one when it
// ends.
const unheard = "cannot subscribe to cancelation channel"

var errUnheard = errors.New("nobody listens for cancellations")

// Subscribe returns a subscription to cancellations that fails, but only when asynq is to end. It passes every
// other subscription on.
func (c *consumer) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	if !slices.Equal(channels, []string{cancelChannel}) {
		return c.UniversalClient.Subscribe(ctx, channels...)
	}
	<-c.stop.Done()
	deaf := redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // or it would look its address up
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return nil, errUnheard }})
	defer deaf.Close()
	return deaf.Subscribe(ctx, channels...)
}

func isUnheard(text string) bool { return strings.HasPrefix(text, unheard) }
