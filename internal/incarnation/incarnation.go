// Package incarnation notices that Redis's data is older than what was seen of it: restored from an old snapshot. It stands
// between steps 3 and 4 of 8: nothing is called then until an operator has settled it, and of what is called afterwards everything counts as
// called before.
//
// Every dispatcher gives a sign of life to each gateway's data and remembers the last one it has seen, in memory (Watch) and in
// a small file (Store). Data without what was seen is doubted; a doubt is written into the data, so that one who remembers is enough. Confirm
// begins a new incarnation of the data, with a mark of the time that its books know nothing of.
//
//	pulse ──sign of life──▶ alive hash ◀──version, least sign of life── open.lua, before each call
//	  │ not what was seen
//	  ▼
//	Watch.Meet ──look──▶ judge(memory, data) ──▶ calm: calls go on
//	                                       └───▶ missing: doubt.lua, nobody calls ──run --after-restore──▶ confirm.lua
package incarnation
