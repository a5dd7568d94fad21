package queue

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynqmon"
	"github.com/redis/go-redis/v9"
)

// Monitor returns asynq's own monitor for everything below path, and the Content-Security-Policy that it needs.
// It is read-only, because deleting, archiving or pausing a task would bypass the records. It shows no payload,
// not even of foreign tasks.
func Monitor(c redis.UniversalClient, path string) (monitor http.Handler, policy string) {
	hidden := func(string, []byte) string { return "not shown here" }
	monitor = asynqmon.New(asynqmon.Options{
		RootPath: strings.TrimSuffix(path, "/"), RedisConnOpt: opened{c}, ReadOnly: true,
		PayloadFormatter: asynqmon.PayloadFormatterFunc(hidden),
		ResultFormatter:  asynqmon.ResultFormatterFunc(hidden),
	})
	return monitor, monitorPolicy(monitor, path)
}

// opened gives asynq an open client, which asynq can't close.
type opened struct{ redis.UniversalClient }

// MakeRedisClient implements asynq.RedisConnOpt.
func (o opened) MakeRedisClient() any { return o.UniversalClient }

var _ asynq.RedisConnOpt = opened{}

var inlineScript = regexp.MustCompile(`(?s)<script>(.*?)</script>`)

// monitorPolicy allows the monitor's page its own files, its inline scripts by their digests, and the inline
// styles that it creates. Its fonts would come from another site; they are not allowed, and the page is
// readable without them.
func monitorPolicy(monitor http.Handler, path string) string {
	page := &kept{header: http.Header{}}
	monitor.ServeHTTP(page, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}})
	scripts := "'self'"
	for _, m := range inlineScript.FindAllStringSubmatch(page.String(), -1) {
		sum := sha256.Sum256([]byte(m[1]))
		scripts += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + scripts + "; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; " +
		"connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// kept is a response that is recorded instead of sent.
type kept struct {
	header http.Header
	strings.Builder
}

func (k *kept) Header() http.Header { return k.header }

func (k *kept) WriteHeader(int) {}
