// Package incarnation detects that Redis's data is older than what was seen of it, because Redis was restored from an
// old snapshot. It works between steps 3 and 4 of 8: no call is then made until an operator has confirmed the restore,
// and after that everything counts as called before.
//
// Every dispatcher gives a sign of life to each gateway's data and remembers the last one it has seen, in memory
// (Watch) and in a small file (Store). Data without what was seen is in doubt. A doubt is recorded in the data, so that
// one process that remembers is enough. Confirm starts a new incarnation of the data, with a mark for the time that its
// records do not cover.
//
//	pulse ──sign of life──▶ alive hash ◀──version, least sign of life── open.lua, before each call
//	  │ not what was seen
//	  ▼
//	Watch.Meet ──look──▶ judge(memory, data) ──▶ calm: calls go on
//	                                       └───▶ missing: doubt.lua, no calls ──run --after-restore──▶ confirm.lua
package incarnation
