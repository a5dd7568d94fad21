package redisdb

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestParseURLReadsEveryForm(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]target{
		"redis://127.0.0.1:6380/3":          {scheme: "redis", addrs: []string{"127.0.0.1:6380"}, db: 3},
		"redis://localhost":                 {scheme: "redis", addrs: []string{"localhost:6379"}},
		"redis://[::1]:6380/0":              {scheme: "redis", addrs: []string{"[::1]:6380"}},
		"redis://[::1]":                     {scheme: "redis", addrs: []string{"[::1]:6379"}},
		"redis://ann:p%40ss%3A@h:1/2":       {scheme: "redis", addrs: []string{"h:1"}, user: "ann", password: "p@ss:", db: 2},
		"redis://:secret@h:1":               {scheme: "redis", addrs: []string{"h:1"}, password: "secret"},
		"redis://:se@cret@h:1":              {scheme: "redis", addrs: []string{"h:1"}, password: "se@cret"},
		"rediss://h:1/0":                    {scheme: "rediss", addrs: []string{"h:1"}, tls: true},
		"redis-socket:///run/redis.sock":    {scheme: "redis-socket", addrs: []string{"/run/redis.sock"}},
		"redis-socket:///a%20b.sock?db=4":   {scheme: "redis-socket", addrs: []string{"/a b.sock"}, db: 4},
		"redis-cluster://a:1,b:2,c":         {scheme: "redis-cluster", addrs: []string{"a:1", "b:2", "c:6379"}},
		"redis-cluster://u:p@a:1/?tls=true": {scheme: "redis-cluster", addrs: []string{"a:1"}, user: "u", password: "p", tls: true},
		"redis-sentinel://u:p@a:1,b/2?master=m&tls=true": {scheme: "redis-sentinel", addrs: []string{"a:1", "b:26379"},
			user: "u", password: "p", db: 2, master: "m", tls: true},
		"embedded": {scheme: "embedded"},
	} {
		got, err := parseURL(raw)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v; want %+v", raw, got, err, want)
		}
	}
}

func TestParseURLSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                                       "no scheme",
		"127.0.0.1:6379":                         "no scheme",
		"embedded://":                            "none of the known schemes",
		"http://h:1":                             "none of the known schemes",
		"unix:///run/redis.sock":                 "none of the known schemes",
		"redis://":                               "host that can't be read",
		"redis://h:0":                            "host that can't be read",
		"redis://h:70000":                        "host that can't be read",
		"redis://h:1/x":                          "database that is not a number",
		"redis://h:1/-1":                         "database that is not a number",
		"redis://h:1/0?db=1":                     "unknown parameter",
		"redis://a:1,b:2":                        "several hosts",
		"redis://u:%zz@h:1":                      "stray %",
		"redis-socket://h/run/redis.sock":        "absolute path",
		"redis-socket:///":                       "absolute path",
		"redis-socket:///s?db=0&db=1":            "db twice",
		"redis-sentinel://a:1/0":                 "names no primary",
		"redis-sentinel://a:1/0?master=m&tls=ja": "neither true nor false",
		"redis-sentinel://a:1,,b:2/0?master=m":   "host that can't be read",
		"redis-cluster://a:1/1":                  "names a database",
		"redis-cluster://a:1?master=m":           "unknown parameter",
		"redis-cluster://a:1?tls=%zz":            "can't be read",
	} {
		_, err := parseURL(raw)
		e, ok := errors.AsType[*Error](err)
		if !ok || !errors.Is(err, ErrURL) || !strings.Contains(e.Message, want) || e.Hint == "" {
			t.Errorf("%s: %#v, want an error with %q and a hint", raw, err, want)
		}
	}
}

// A password that was not escaped can end up in any part of the address.
func TestNoErrorShowsAPassword(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"redis//:hunter2@h:1", "hunter2://h:1", "redis://:hunter2@h:x", "redis://:a/hunter2@h:1/0", "redis://:a?hunter2@h:1/0",
		"redis://:a#hunter2@h:1/0", "redis://:hunter2%@h:1", "redis://:x@hunter2@h:a", "redis-sentinel://:hunter2@h:1/0",
		"redis-cluster://:hunter2@h:1/7", "redis://h:1/hunter2", "redis://h:1/0?hunter2", "redis-socket://:hunter2@/", "redis://:hunter2",
	} {
		_, err := parseURL(raw)
		e, ok := errors.AsType[*Error](err)
		if !ok || strings.Contains(e.Error()+e.Hint, "hunter2") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestStringHidesWhoLogsIn(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"redis://ann:hunter2@h:1/2":                    "redis://h:1/2",
		"rediss://:hunter2@h:1":                        "rediss://h:1/0",
		"redis-socket://:hunter2@/s?db=1":              "redis-socket:///s?db=1",
		"redis-cluster://:hunter2@a:1,b:2":             "redis-cluster://a:1,b:2",
		"redis-sentinel://:hunter2@a:1,b:2/3?master=m": "redis-sentinel://a:1,b:2/3?master=m",
		"embedded": "embedded",
	} {
		if got, err := parseURL(raw); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v; want %s", raw, got, err, want)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("redis-sentinel://u:p@a:1,b/2?master=m&tls=true")
	f.Add("redis://[::1]:6380/0")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := parseURL(raw)
		switch {
		case err != nil && !errors.Is(err, ErrURL):
			t.Fatalf("%q: %v is no ErrURL", raw, err)
		case err == nil && got.scheme != Embedded && len(got.addrs) == 0:
			t.Fatalf("%q: no host", raw)
		}
	})
}
