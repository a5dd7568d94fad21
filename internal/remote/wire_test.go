package remote

import (
	"net/url"
	"testing"
)

// A body is one object, with nothing after it.
func TestWhatIsBehindABodyIsRefused(t *testing.T) {
	t.Parallel()
	path := func(string) string { return "g" }
	for body, fine := range map[string]bool{`{"by":"ann"}`: true, "{\"by\":\"ann\"}\n ": true, `{"by":"ann"}]`: false, `{"by":"ann"} {}`: false, `{"by":"ann"}}`: false, `{"by":"ann"},`: false} {
		if err := Read(new(SteerOf), path, url.Values{}, []byte(body)); (err == nil) != fine {
			t.Errorf("%s: %v", body, err)
		}
	}
}
