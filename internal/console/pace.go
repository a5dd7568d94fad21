package console

import (
	"net/url"
	"strconv"
	"strings"

	"spillway/internal/config"
)

// pace is how carefully a replay goes. The zero one goes as fast as there is room.
type pace struct {
	rate   float64 // units of cost a second; 0: no bound
	share  float64 // of the gateway's tightest limit, 0 to 1; 0: no bound
	canary int     // jobs that go first; 0: none
	flags  string  // as dispatcher dlq replay has them, for the trail
}

// parsePace reads what was typed into the form of a replay.
func parsePace(form url.Values) (p pace, err error) {
	fast, ahead := strings.TrimSpace(form.Get("pace")), strings.TrimSpace(form.Get("canary"))
	if fast != "" {
		if err := p.setFast(fast); err != nil {
			return p, err
		}
	}
	if ahead != "" {
		if p.canary, err = strconv.Atoi(ahead); err != nil || p.canary < 1 {
			return p, wrong("how many jobs go ahead is a number from 1", "go back and write one, like 20, or leave it empty")
		}
		p.flags += " --canary " + ahead
	}
	return p, nil
}

func (p *pace) setFast(text string) error {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !(n > 0 && n <= 100) || strings.ContainsAny(number, "xXpP_") {
			return wrong(text+" is no share of the limit", "go back and write one, like 20%, more than 0% and at most 100%")
		}
		p.share, p.flags = n/100, " --share "+text
		return nil
	}
	l, err := config.ParseLimit(text)
	if err != nil {
		return wrong(err.Error(), "go back and write a rate like 50/s or a share of the limit like 20%, or leave it empty")
	}
	p.rate, p.flags = config.PerSecond([]config.Limit{l}), " --rate "+text
	return nil
}
