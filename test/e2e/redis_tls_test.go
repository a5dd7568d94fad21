package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// behindTLS starts a Redis that speaks TLS. Its certificate is of an authority that no system knows, and it accepts clients whose certificate another authority has signed.
// redis(name, line) writes a configuration with this value of redis, in which THEIRS and OURS are the authorities' files.
func behindTLS(t *testing.T, w *world) (redis func(name, line string) string) {
	t.Helper()
	theirs, ours := testkit.NewAuthority(t), testkit.NewAuthority(t)
	them, us := theirs.Files("redis", time.Hour), ours.Files("us", time.Hour)
	port := fmt.Sprint(testkit.FreePort(t))
	w.redis = testkit.Server(t, "--appendonly", "yes", "--tls-port", port, "--tls-auth-clients", "yes", "--tls-ca-cert-file", us+"/ca.pem",
		"--tls-cert-file", them+"/redis.pem", "--tls-key-file", them+"/redis.key")
	file, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(file), "\n")
	at := strings.NewReplacer("OURS", us, "THEIRS", them, "PORT", port)
	return func(name, line string) string { return w.file(name, at.Replace("redis: "+line+"\n")+rest) }
}

// A Redis with an authority of its own asks for a certificate. With the files of redis.tls both programs do all their work, and without them they
// say what is missing. No other certificate is accepted for Redis's.
func TestRedisWithAnAuthorityOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [100/s]}\n")
	redis := behindTLS(t, w)
	jobs := w.jobs("a.ndjson", 20)
	const own = "cert: OURS/us.pem, key: OURS/us.key"
	for name, c := range map[string]struct {
		line string
		says []string
	}{
		"system":   {"{url: \"rediss://127.0.0.1:PORT/0\", tls: {" + own + "}}", []string{"certificate", "unknown authority", "redis.tls.ca"}},
		"stranger": {"{url: \"rediss://127.0.0.1:PORT/0\", tls: {ca: OURS/ca.pem, " + own + "}}", []string{"unknown authority", "redis.tls.ca"}},
		"name":     {"{url: \"rediss://127.0.0.1:PORT/0\", tls: {ca: THEIRS/ca.pem, " + own + ", server_name: redis.example}}", []string{"redis.example", "server_name"}},
	} {
		w.config = redis(name+".yaml", c.line)
		for program, r := range map[string]result{"enqueue": w.do("enqueue", "-g", "stripe", "-f", jobs), "dispatcher": w.do("dispatcher", "status")} {
			for _, want := range c.says {
				if r.code != 1 || !strings.Contains(r.err, want) {
					t.Errorf("%s, %s: exit code %d, and no %s in\n%s", name, program, r.code, want, r.err)
				}
			}
		}
	}
	w.config = redis("nobody.yaml", "{url: \"rediss://127.0.0.1:PORT/0\", tls: {ca: THEIRS/ca.pem}}")
	if r := w.do("dispatcher", "status"); r.code == 0 {
		t.Errorf("Redis lets in who shows no certificate:\n%s", r.out)
	}
	w.config = redis("well.yaml", "{url: \"rediss://127.0.0.1:PORT/0\", tls: {ca: THEIRS/ca.pem, "+own+"}}")
	w.ok("enqueue", "-g", "stripe", "-f", jobs, "-q")
	w.dispatcher()
	w.emptied(t, time.Minute, 20)
	w.ok("dispatcher", "audit")
	if out := w.do("dispatcher", "doctor").out; strings.Contains(out, "unencrypted") {
		t.Errorf("doctor does not know of the TLS:\n%s", out)
	}
}
