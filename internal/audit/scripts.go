package audit

import (
	"embed"

	"spillway/internal/record"
	"spillway/internal/redisdb"
)

//go:embed *.lua
var files embed.FS

func lua(name string) string { return record.Text(files, name) }

var (
	recordsScript    = redisdb.NewScript(redisdb.NowLua, record.FlowLua, lua("records"))
	tasksScript      = redisdb.NewScript(redisdb.NowLua, lua("tasks"))
	membersScript    = redisdb.NewScript(redisdb.NowLua, lua("members"))
	parkedSumsScript = redisdb.NewScript(redisdb.NowLua, record.Lua, lua("parked_sums"))
	toldScript       = redisdb.NewScript(redisdb.NowLua, lua("told"))
	lanedScript      = redisdb.NewScript(redisdb.NowLua, lua("laned"))
	relistScript     = redisdb.NewScript(redisdb.NowLua, lua("relist"))
	relaneScript     = redisdb.NewScript(redisdb.NowLua, lua("relane"))
	recountScript    = redisdb.NewScript(lua("recount"))
	mendScript       = redisdb.NewScript(redisdb.NowLua, record.Lua, lua("mend"))
	rebookScript     = redisdb.NewScript(lua("rebook")).Replicated()
	reshelveScript   = redisdb.NewScript(record.Lua, lua("reshelve")).Replicated()
)
