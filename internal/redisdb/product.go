package redisdb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Product is the name of a server that speaks Redis's protocol.
type Product string

// The known products.
const (
	Redis     Product = "Redis"
	Valkey    Product = "Valkey"
	Redict    Product = "Redict"
	KeyDB     Product = "KeyDB"
	Dragonfly Product = "Dragonfly"
	Kvrocks   Product = "Kvrocks"
)

// tested are the versions on which "make servers" was run, by their first two numbers, newest last. docs/guarantees.md
// has the same list.
var tested = map[Product][]string{Redis: {"7.0", "8.0"}, Valkey: {"8.1"}}

// productOf returns which product INFO describes, and its own version. All products but Redis have one besides
// redis_version, which is the version they are compatible with.
func productOf(info map[string]string) (Product, string) {
	for field, p := range map[string]Product{"valkey_version": Valkey, "redict_version": Redict, "dragonfly_version": Dragonfly, "kvrocks_version": Kvrocks} {
		if v := info[field]; v != "" {
			return p, v
		}
	}
	if info["mvcc_depth"] != "" {
		return KeyDB, info["redis_version"]
	}
	return Redis, info["redis_version"]
}

// checkProduct checks a server by product. Redis and its forks are checked by version.
func checkProduct(p Product, version, asRedis string) []Finding {
	switch p {
	case Dragonfly:
		return []Finding{{Refuse, fmt.Sprintf("Dragonfly %s is not Redis: its scripts may touch no keys but those that are named beforehand, and its Lua is another one", version),
			"use Redis 6.2 or newer, or Valkey"}}
	case KeyDB, Kvrocks:
		return []Finding{{Warn, fmt.Sprintf("%s %s is not among the servers that Spillway is tested with: it may not keep limits and jobs", p, version), "use Redis 6.2 or newer, or Valkey"}}
	}
	if found := checkVersion(asRedis); found != nil {
		return found
	}
	if known := tested[p]; len(known) > 0 && beyond(version, known[len(known)-1]) {
		return []Finding{{Warn, fmt.Sprintf("%s %s is newer than the newest that this version's tests were run on (%s)", p, version, known[len(known)-1]),
			"look into the changelog of a newer Spillway, or run \"make servers\" on it"}}
	}
	return nil
}

// beyond reports whether a version has a higher major number than another.
func beyond(version, known string) bool {
	a, errA := strconv.Atoi(first(version))
	b, errB := strconv.Atoi(first(known))
	return errA == nil && errB == nil && a > b
}

func first(version string) string {
	major, _, _ := strings.Cut(version, ".")
	return major
}

// Called names the server and its version, such as "version 7.0.15" or "Valkey 8.1.1".
func (h Health) Called() string {
	text := string(h.Product) + " " + h.Own
	if h.Product == Redis {
		text = "version " + h.Own
	}
	if slices.ContainsFunc(tested[h.Product], func(known string) bool { return strings.HasPrefix(h.Own+".", known+".") }) {
		return text
	}
	return text + ", which the tests of this version were not run on"
}
