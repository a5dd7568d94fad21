package incarnation

import (
	"context"
	_ "embed" // for the scripts
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

//go:embed leave.lua
var leaveLua string

//go:embed arrive.lua
var arriveLua string

var (
	leaveScript  = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, leaveLua).Replicated()
	arriveScript = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, lineLua, arriveLua).Replicated()
)

// Move is a gateway to be renamed or forgotten.
type Move struct {
	Old string
	New string // empty: forget it
	// Silence is how long no sign of life may have been given.
	Silence time.Duration
	// Entry is written into the audit trail; empty: nothing is.
	Entry string
}

// What returns "rename OLD NEW" or "forget NAME".
func (m Move) What() string {
	return strings.TrimSpace(map[bool]string{true: "forget ", false: "rename "}[m.New == ""] + m.Old + " " + m.New)
}

// Left is the result of Leave.
type Left struct {
	// What is what was begun, now or before. If nothing was changed, it is the reason as named in leave.lua.
	What string
	// Entry is the place of the audit entry, or when the move was begun, in µs. If nothing was changed, it is a number
	// or text that explains What.
	Entry string
}

// Leave begins to rename or forget a gateway. From then on there are no calls, and nothing is admitted.
func (m Move) Leave(ctx context.Context, c redis.UniversalClient) (Left, error) {
	k := redisdb.NewKeys(m.Old)
	keys := []string{k.Alive(), k.Open(), k.Counters(), k.Trail()}
	if m.New != "" {
		n := redisdb.NewKeys(m.New)
		keys = append(keys, n.Alive(), n.Counters())
	}
	reply, err := leaveScript.Run(ctx, c, keys, 0, m.What(), m.Silence.Microseconds(), m.Entry).StringSlice()
	if err == nil && len(reply) != 2 {
		err = redisdb.BadReply("leave.lua", reply)
	}
	if err != nil {
		return Left{}, err
	}
	return Left{reply[0], reply[1]}, nil
}

// Arrive ends a rename.
func (m Move) Arrive(ctx context.Context, c redis.UniversalClient) error {
	return arriveScript.Run(ctx, c, []string{redisdb.NewKeys(m.Old).Alive(), redisdb.NewKeys(m.New).Alive()}, 0, m.What()).Err()
}
