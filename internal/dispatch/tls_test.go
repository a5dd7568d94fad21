package dispatch

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// secured makes a call to a gateway whose certificate is signed by theirs, and which accepts client certificates signed by ours. line is the tls setting; OURS and
// THEIRS in it stand for the directories of the files.
func secured(t *testing.T, theirs, ours *testkit.Authority, line string) (job.Result, string) {
	t.Helper()
	var who string
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { who = r.TLS.PeerCertificates[0].Subject.CommonName }))
	srv.TLS, srv.Config.ErrorLog = theirs.Server(ours), log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	line = strings.NewReplacer("OURS", ours.Files("us", time.Hour), "THEIRS", theirs.Files("them", time.Hour)).Replace(line)
	text := fmt.Sprintf("gateways:\n  g:\n    request: {url: %q, tls: %s}\n    leak: {limits: [1/s]}\n", srv.URL, line)
	cfg, err := config.Parse(filepath.Join(t.TempDir(), "d.yaml"), []byte(text), config.Options{Secrets: true})
	if err != nil {
		t.Fatal(err)
	}
	how, err := callConfig(cfg.Gateways[0])
	if err != nil {
		t.Fatal(err)
	}
	c, err := gateway.New(how)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Send(t.Context(), job.Request{Job: job.Job{ID: "j"}, Key: "j"}), who
}

func TestACallShowsItsCertificateToWhomItTrusts(t *testing.T) {
	t.Parallel()
	theirs, ours := testkit.NewAuthority(t), testkit.NewAuthority(t)
	if res, who := secured(t, theirs, ours, "{ca: THEIRS/ca.pem, cert: OURS/us.pem, key: OURS/us.key}"); res.Status != http.StatusOK || who != "us" {
		t.Errorf("%+v, as %q", res, who)
	}
	if res, _ := secured(t, theirs, ours, "{ca: OURS/ca.pem, cert: OURS/us.pem, key: OURS/us.key}"); res.Stage != job.NotSent || !strings.Contains(fmt.Sprint(res.Err), "unknown authority") {
		t.Errorf("trusting another authority: %+v", res)
	}
	for what, line := range map[string]string{"no certificate": "{ca: THEIRS/ca.pem}", "another's": "{ca: THEIRS/ca.pem, cert: THEIRS/them.pem, key: THEIRS/them.key}"} {
		res, who := secured(t, theirs, ours, line)
		says := fmt.Sprint(res.Err) // the gateway's alert, or that it hung up: its reset may come before the alert was read
		if res.Stage == job.Answered || who != "" || !strings.Contains(says, "tls: ") && !strings.Contains(says, " broke ") {
			t.Errorf("with %s: %+v, as %q", what, res, who)
		}
	}
}
