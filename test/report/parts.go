package main

import "strings"

// part is one part of the battery.
type part struct {
	name  string
	about string
	// short and long are shell commands. {seed} stands for the seed.
	short, long string
}

// seedWord stands for the seed in a command.
const seedWord = "{seed}"

func (p part) command(o options) string {
	command := p.short
	if o.form == long {
		command = p.long
	}
	return strings.ReplaceAll(command, seedWord, seedOf(o))
}

// seeded reports whether the part draws its faults with the seed.
func (p part) seeded(o options) bool {
	return o.form == long && strings.Contains(p.long, seedWord) || o.form == short && strings.Contains(p.short, seedWord)
}

// battery returns the parts of a release test. Quick ones come first, so that a report that is cut short has most of them.
func battery() []part {
	return []part{
		{"verify", "violations that are planted into the files of real runs are found one by one, and none in clean runs of eleven kinds",
			"go test ./internal/verify -count=1 -v && go test ./test/e2e -run TestVerify -count=1 -v -timeout 20m",
			"go test ./internal/verify -count=3 -v && go test ./test/e2e -run TestVerify -count=3 -v -timeout 60m"},
		{"failover", "sentinels and a cluster fail over, Redis stalls, is killed, says not now, and forgets",
			"go test ./test/e2e -run 'Sentinel|Cluster|RedisIsKilled|RedisStalls' -count=1 -v -timeout 30m",
			"go test ./test/e2e -run 'Sentinel|Cluster|Redis|Restore|Lost' -count=3 -v -timeout 3h"},
		{"incidents", "gateways in trouble, in virtual time: saved answers, outages, stalls, clocks, look-ups",
			"go test ./internal/dispatch -run 'Incident|Upset' -count=1 -v -timeout 30m",
			"go test ./internal/dispatch -run 'Upset|NobodyWaits|OfAMoment|Incident|EachPacksBooks|GatewayCanTell|LostAnswersAre|OfEveryState' -count=1 -v -timeout 3h -args -long"},
		{"upgrade", "two releases at once under load, there and back, with jobs in every state",
			"go test ./test/e2e -run 'ReplaceOneAnother|StepsOfAnUpgrade|BackupIsRestored|NewerFormat' -count=1 -v -timeout 30m",
			"go test ./test/e2e -run 'ReplaceOneAnother|StepsOfAnUpgrade|BackupIsRestored|NewerFormat' -count=1 -v -timeout 4h -args -rolls 50"},
		{"crash", "a process is killed at its Redis commands; all of them, in every way, in the long form",
			"go test ./test/crash -count=1 -v -timeout 30m",
			"go test ./test/crash -count=1 -v -timeout 2h -args -full"},
		{"chaos", "everything is broken at random, then every job is accounted for",
			"make chaos CHAOS=1m SEED={seed}",
			"make chaos CHAOS=30m SEED={seed}"},
		{"soak", "the limits, the rates, and good jobs among bad ones",
			"go test ./test/e2e -run 'LimitIsKept|KilledAllTheTime|FirstJob|Idle' -count=1 -v -timeout 30m -args -soak 15s",
			"make soak SOAK=60s"},
		{"memory", "two dispatchers and Redis for two hours at a limit of 200/s: their growth, with its error",
			"go test ./test/e2e -run MemoryStaysFlat -count=1 -v -timeout 30m -args -flat 1m",
			"make flat FLAT=2h"},
	}
}
