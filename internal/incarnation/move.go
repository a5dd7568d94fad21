package incarnation

import (
	"context"
	_ "embed" // the scripts are files
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

// Move is a gateway that is to get another name, or to be forgotten.
type Move struct {
	Old string
	New string // empty: it is to be forgotten
	// Silence is how long nobody may have given a sign of life.
	Silence time.Duration
	// Entry is written into the trail; empty: nothing is.
	Entry string
}

// What says it in words: "rename OLD NEW" or "forget NAME".
func (m Move) What() string {
	return strings.TrimSpace(map[bool]string{true: "forget ", false: "rename "}[m.New == ""] + m.Old + " " + m.New)
}

// Left is what came of Leave.
type Left struct {
	// What is begun, or again where it was begun before; else nothing was changed, for the reason that leave.lua names.
	What string
	// Entry is the place of the entry in the trail, or when it was begun, in µs; where nothing was changed, a number or a text that goes with What.
	Entry string
}

// Leave begins to rename or forget a gateway. From then on nobody calls it and nothing goes in.
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
