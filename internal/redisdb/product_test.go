package redisdb

import (
	"strings"
	"testing"

	"spillway/internal/testkit"
)

// Each server is known by what its INFO says of it, and judged by its own version.
func TestServersAreKnownByTheirInfo(t *testing.T) {
	t.Parallel()
	newest := tested[Redis][len(tested[Redis])-1]
	for info, want := range map[string]struct {
		called   string
		severity Severity
		says     string
	}{
		"redis_version:" + newest + ".1\r\n": {"version " + newest + ".1", "", ""},
		"redis_version:6.2.14\r\n":           {"version 6.2.14, which the tests of this version were not run on", "", ""},
		"redis_version:6.0.16\r\n":           {"version 6.0.16, which the tests of this version were not run on", Refuse, "Redis 6.0.16 is too old"},
		"redis_version:99.0.1\r\n":           {"version 99.0.1, which the tests of this version were not run on", Warn, "newer than the newest"},
		"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:99.1.3\r\n": {"Valkey 99.1.3, which the tests of this version were not run on", map[bool]Severity{true: Warn}[len(tested[Valkey]) > 0], ""},
		"redis_version:7.4.0\r\ndragonfly_version:df-v1.40.1\r\n":                {"Dragonfly df-v1.40.1, which the tests of this version were not run on", Refuse, "Dragonfly df-v1.40.1 is not Redis"},
		"redis_version:6.3.4\r\n# KeyDB\r\nmvcc_depth:0\r\n":                     {"KeyDB 6.3.4, which the tests of this version were not run on", Warn, "KeyDB 6.3.4 is not among"},
	} {
		f := fields(info)
		h := Health{Version: f["redis_version"]}
		h.Product, h.Own = productOf(f)
		if h.Called() != want.called {
			t.Errorf("%q is called %q, want %q", info, h.Called(), want.called)
		}
		found := checkProduct(h.Product, h.Own, h.Version)
		if want.severity == "" {
			if len(found) > 0 {
				t.Errorf("%q: %v", info, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Severity != want.severity || !strings.Contains(found[0].Message, want.says) || found[0].Hint == "" {
			t.Errorf("%q: %v, want %s with %q", info, found, want.severity, want.says)
		}
	}
}

func TestAServerSaysWhoItIs(t *testing.T) {
	t.Parallel()
	db, err := Open(t.Context(), testkit.Redis(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	all, err := db.Health(t.Context(), nil)
	if err != nil || len(all) != 1 || all[0].Product == "" || all[0].Own == "" {
		t.Errorf("%+v, %v", all, err)
	}
}
