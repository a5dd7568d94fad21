package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// fact is one fact about the machine of a report.
type fact struct{ name, value string }

// machine returns the facts about the machine.
func machine(ctx context.Context) []fact {
	commit := ask(ctx, "git", "rev-parse", "HEAD")
	if ask(ctx, "git", "status", "--porcelain") != "" {
		commit += ", and changes that are not committed"
	}
	return []fact{
		{"commit", commit},
		{"machine", fmt.Sprintf("%d processors (%s), %s of memory, %s", runtime.NumCPU(), processor(), memory(), ask(ctx, "uname", "-srm"))},
		{"Go", runtime.Version()},
		{"Redis", ask(ctx, "redis-server", "--version")},
		{"PostgreSQL", ask(ctx, "postgres", "--version")},
	}
}

// ask returns the first line that a program prints, or that the program is not there.
func ask(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return "not known"
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return first
}

// field returns the value of a line "name: value" of a file of /proc; empty if there is none.
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func processor() string {
	if model := field("/proc/cpuinfo", "model name"); model != "" {
		return model
	}
	return runtime.GOARCH
}

func memory() string {
	var kilobytes int64
	if _, err := fmt.Sscan(field("/proc/meminfo", "MemTotal"), &kilobytes); err != nil {
		return "an unknown amount"
	}
	const gibibyte = 1 << 20 // of kilobytes
	return fmt.Sprintf("%.1f GiB", float64(kilobytes)/gibibyte)
}
