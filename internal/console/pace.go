package console

import (
	"net/url"
	"strconv"
	"strings"

	"spillway/internal/desk"
)

// parsePace parses the form of a replay.
func parsePace(form url.Values) (p desk.Pace, err error) {
	fast, ahead := strings.TrimSpace(form.Get("pace")), strings.TrimSpace(form.Get("canary"))
	switch {
	case strings.HasSuffix(fast, "%"):
		err = p.SetShare(fast, "how fast:")
	case fast != "":
		err = p.SetRate(fast, "how fast:")
	}
	if err == nil && ahead != "" {
		if p.Canary, err = strconv.Atoi(ahead); err != nil || p.Canary < 1 {
			return p, wrong("how many jobs go ahead is a number from 1", "go back and write one, like 20, or leave it empty")
		}
	}
	return p, err
}
