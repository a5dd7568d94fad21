package packs

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

var letters = regexp.MustCompile(`#[ ]+([a-z](?:, ?[a-z])*)(?:[:;. ]|$)`)

func TestEveryPackSaysWhereItIsFrom(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		p, err := Get(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p.Name != name || p.Title == "" || len(p.Title) > 60 || len(p.Sources) == 0 || len(p.Caveats) == 0 || len(p.Gateway) == 0 {
			t.Errorf("%s: name %q, title %q, %d sources, %d caveats", name, p.Name, p.Title, len(p.Sources), len(p.Caveats))
		}
		if _, err := time.Parse(time.DateOnly, p.Read); err != nil {
			t.Errorf("%s was read on %q", name, p.Read)
		}
		for letter, address := range p.Sources {
			if len(letter) != 1 || !strings.HasPrefix(address, "https://") {
				t.Errorf("%s: source %s is %s", name, letter, address)
			}
		}
		for _, limit := range p.Limits {
			if _, err := job.ParseLimit(limit.Limit); err != nil || limit.Per == "" {
				t.Errorf("%s: %+v: %v", name, limit, err)
			}
		}
		for _, line := range strings.Split(string(p.Text()), "\n") {
			if m := letters.FindStringSubmatch(line); m != nil {
				for _, letter := range strings.Split(strings.ReplaceAll(m[1], " ", ""), ",") {
					if p.Sources[letter] == "" {
						t.Errorf("%s: no source %s: %s", name, letter, line)
					}
				}
			}
		}
	}
}

func TestAPackThatThereIsNot(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"stripe/v9", "stripe", "", "../packs/v1", "stripe/v1/x", "stripe-v1"} {
		_, err := Get(name)
		if job.CodeOf(err) != job.CodeNotFound || !strings.Contains(err.(*job.Error).Hint, "stripe/v1") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
