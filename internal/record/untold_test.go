package record

import (
	"strings"
	"testing"

	"spillway/internal/redisdb"
)

// The form of a script for gateways without an outcome feed contains nothing of the feed, and the other form has all of it.
func TestScriptsWithoutAFeedKnowNothingOfIt(t *testing.T) {
	t.Parallel()
	Told()
	Accept("local function bucket_load() end\n", Form{Feed: true, Flows: true})
	Accept("local function bucket_load() end\n", Form{Feed: false, Flows: true})
	told, untold := 0, 0
	for _, text := range redisdb.Texts() {
		switch {
		case strings.Contains(text, "at_end()") && strings.Contains(text, "feed_text("):
			told++
		case strings.Contains(text, "feed_") || strings.Contains(text, "--fed") || strings.Contains(text, "at_end"):
			t.Errorf("a script of gateways without a feed has something of it:\n%s", text)
		default:
			untold++
		}
	}
	if told < 16 || untold < 20 {
		t.Errorf("%d scripts tell, and %d do not", told, untold)
	}
}
