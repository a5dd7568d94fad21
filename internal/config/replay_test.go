package config

import (
	"strings"
	"testing"
)

func TestReplayIsAWordOrOneForEachReason(t *testing.T) {
	const head = "gateways:\n  stripe:\n    request: {url: \"https://x.example/\"}\n    leak: {limits: [1/s]}\n    replay: "
	for text, want := range map[string][2]Replay{
		"auto":                                {ReplayAuto, ReplayManual},
		"manual":                              {ReplayManual, ReplayManual},
		"{exhausted: after-recovery}":         {ReplayAuto, ReplayRecovery},
		"{rejected: manual}":                  {ReplayManual, ReplayManual},
		"{rejected: auto, exhausted: manual}": {ReplayAuto, ReplayManual},
		"{rejected: manual, exhausted: after-recovery}": {ReplayManual, ReplayRecovery},
	} {
		cfg, err := Parse("x.yaml", []byte(head+text+"\n"), Options{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if g := cfg.Gateways[0]; g.Replay != want[0] || g.Exhausted != want[1] {
			t.Errorf("%s: %s and %s, want %v", text, g.Replay, g.Exhausted, want)
		}
	}
	for text, want := range map[string]string{
		"after-recovery":     `"after-recovery" is not a way of replay: use one of auto, manual`,
		"{exhausted: auto}":  `replay.exhausted: "auto" is not a way of replay: use one of manual, after-recovery`,
		"{refused: manual}":  "replay.refused: unknown key: use one of rejected, exhausted",
		"{rejected: always}": `replay.rejected: "always" is not a way of replay`,
	} {
		if _, err := Parse("x.yaml", []byte(head+text+"\n"), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
