package redisdb

// Forgets returns which acknowledged writes this server may lose in a crash, and what to do; empty if none. wait is how
// many replicas have each write before it is acknowledged.
func (h Health) Forgets(wait int) (what, hint string) {
	const always = "set appendfsync to always: redis-cli CONFIG SET appendfsync always, and in its configuration file"
	switch {
	case !h.AOF:
		return "Redis keeps no append-only file and may forget all since its last snapshot", turnOn + "; then " + always
	case h.Replicas > 0 && wait == 0:
		return "a fail-over may forget the last moments (wait_replicas is 0)", "set wait_replicas: 1"
	case wait > 0:
		return "", "" // a replica has it, too
	case h.Fsync == "everysec":
		return "a power cut may make Redis forget the last second (appendfsync everysec)", always
	case h.Fsync == "no":
		return "a power cut may make Redis forget the last half minute (appendfsync no)", always
	case h.Fsync == "":
		return "a power cut may make Redis forget the last moments, unless appendfsync is always, which could not be looked up", always
	}
	return "", ""
}
