package redisdb

import _ "embed" // the fragment is a file

// OutageLua is outage.lua: when a gateway was down, and what that means for the attempts of a job. It goes after NowLua.
//
//go:embed outage.lua
var OutageLua string
