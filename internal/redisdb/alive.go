package redisdb

import _ "embed" // the fragment is a file

// AliveLua is alive.lua: the age of a gateway's data, as the scripts that must not work on old data look at it.
//
//go:embed alive.lua
var AliveLua string
