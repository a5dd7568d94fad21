package ledger

import (
	"embed"

	"spillway/internal/record"
	"spillway/internal/redisdb"
)

//go:embed *.lua
var files embed.FS

func lua(name string) string { return record.Text(files, name) }

// Scripts that only read, that claim ids, and that remove stale tasks from the queue. The scripts that change a
// record are in internal/record.
var (
	lookScript     = redisdb.NewScript(redisdb.NowLua, lua("queued"), lua("look"))
	pulseScript    = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, lua("queued"), lua("pulse"))
	waitingScript  = redisdb.NewScript(redisdb.NowLua, lua("waiting"))
	rejectedScript = redisdb.NewScript(lua("rejected"))
	astrayScript   = redisdb.NewScript(redisdb.NowLua, lua("astray"))
	claimScript    = redisdb.NewScript(redisdb.NowLua, lua("claim")).Replicated()
	unclaimScript  = redisdb.NewScript(lua("unclaim"))
	knownScript    = redisdb.NewScript(lua("known"))
	unclassScript  = redisdb.NewScript(lua("unclass"))
	unlaneScript   = redisdb.NewScript(redisdb.NowLua, lua("unlane"))
	flyingScript   = redisdb.NewScript(redisdb.NowLua, lua("flying"))
	turnsScript    = redisdb.NewScript(redisdb.NowLua, record.Lua, record.ShareLua, lua("turns"))
	reflowScript   = redisdb.NewScript(redisdb.NowLua, record.Lua, lua("reflow"))
	unfitScript    = redisdb.NewScript(redisdb.NowLua, record.Lua, lua("unfit"))
	papersScript   = redisdb.NewScript(redisdb.NowLua, lua("papers"))
)
