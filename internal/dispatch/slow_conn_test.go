package dispatch

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// The connections of a gateway may take longer to open than a slot can be used. Its calls then take another slot while they have their connection.
func TestAGatewayWhoseConnectionsOpenSlowlyIsCalled(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{600 * time.Millisecond, 3 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			t.Parallel()
			g := &till{}
			virtually(t, g, `{url: URL/, idempotency_prefix: ""}`, "leak: {limits: [20/s], jitter: 1ms}\nadmission: {limits: [10000/s], burst: 20000}", func(t *testing.T, r *rig) {
				at := r.dial
				r.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					select {
					case <-time.After(takes):
						return at(ctx, network, addr)
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				r.admit(several("j", 0, 400, "")...)
				r.serve()
				<-time.After(15 * time.Second)
				if n := strings.Count(g.called(), "j"); n < 200 {
					t.Errorf("%d calls in 15 s at a limit of 20/s", n)
				}
				testkit.Eventually(t, time.Minute, "all to be done", func() bool { return r.standing(0).Done == 400 })
				r.clean()
			})
		})
	}
}
