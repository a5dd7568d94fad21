package test

import (
	"go/version"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"spillway/internal/config"
)

func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type service struct {
	Image       string            `yaml:"image"`
	Entrypoint  []string          `yaml:"entrypoint"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Volumes     []string          `yaml:"volumes"`
	Ports       []string          `yaml:"ports"`
	ReadOnly    bool              `yaml:"read_only"`
	CapDrop     []string          `yaml:"cap_drop"`
	SecurityOpt []string          `yaml:"security_opt"`
	Secrets     []string          `yaml:"secrets"`
	Healthcheck struct {
		Test []string `yaml:"test"`
	} `yaml:"healthcheck"`
	DependsOn map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
}

type composeFile struct {
	Services map[string]service `yaml:"services"`
	Volumes  map[string]any     `yaml:"volumes"`
}

func compose(t *testing.T) composeFile {
	t.Helper()
	var c composeFile
	if err := yaml.Unmarshal([]byte(text(t, "../docker-compose.yml")), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// The commands and flags are the contract's; docs/cli-json.md and --help name the same.
func TestComposeRunsWhatTheProgramsUnderstand(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"redis":        "redis-server --appendonly yes --appendfsync everysec --maxmemory-policy noeviction " + users(t),
		"provider":     "provider --listen 0.0.0.0:9500 --limit 100/s",
		"dispatcher-1": "run -c /etc/spillway/dispatcher.yaml --listen 0.0.0.0:9400",
		"dispatcher-2": "run -c /etc/spillway/dispatcher.yaml --listen 0.0.0.0:9400",
		"enqueue":      "--help",
		"prometheus":   "--config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/prometheus",
		"grafana":      "",
	}
	services := compose(t).Services
	if len(services) != len(want) {
		t.Errorf("%d services, want %d", len(services), len(want))
	}
	for name, command := range want {
		if got := strings.Join(services[name].Command, " "); got != command {
			t.Errorf("%s runs %q, want %q", name, got, command)
		}
	}
	if e := services["enqueue"]; !slices.Equal(e.Entrypoint, []string{"/enqueue"}) || e.Environment["DISPATCHER_CONFIG"] != "/etc/spillway/dispatcher.yaml" {
		t.Errorf("enqueue starts %v with %v", e.Entrypoint, e.Environment)
	}
}

func TestComposeLocksEachServiceDown(t *testing.T) {
	t.Parallel()
	for name, s := range compose(t).Services {
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
			t.Errorf("%s: read_only %v, cap_drop %v, security_opt %v", name, s.ReadOnly, s.CapDrop, s.SecurityOpt)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s to the world", name, p)
			}
		}
	}
}

// users are Redis's users as docs/security.md has them, for the gateways of the example.
func users(t *testing.T) string {
	t.Helper()
	all := "--user default on nopass resetkeys resetchannels -@all +ping"
	for _, m := range regexp.MustCompile(`(?m)^    redis-cli ACL SETUSER (spillway-(?:dispatcher|producer) .*)$`).FindAllStringSubmatch(text(t, "../docs/security.md"), -1) {
		var words, more []string
		for word := range strings.FieldsSeq(strings.ReplaceAll(m[1], "'", "")) {
			if strings.Contains(word, "{stripe}") {
				more = append(more, strings.Replace(word, "{stripe}", "{adyen}", 1))
			} else if len(more) > 0 {
				words, more = append(words, more...), nil
			}
			words = append(words, word)
		}
		all += " --user " + strings.Join(words, " ")
	}
	all = strings.Replace(all, ">PASSWORD", ">${REDIS_PASSWORD:?set it to a secret of your own}", 1)
	return strings.Replace(all, ">PASSWORD", ">${REDIS_PRODUCER_PASSWORD:?set it to another secret}", 1)
}

func TestComposeKeepsJobsAndWaitsForRedis(t *testing.T) {
	t.Parallel()
	c := compose(t)
	r := c.Services["redis"]
	if _, ok := c.Volumes["redis-data"]; !ok || !slices.Contains(r.Volumes, "redis-data:/data") || len(r.Healthcheck.Test) == 0 {
		t.Errorf("redis has volumes %v and the health check %v", r.Volumes, r.Healthcheck.Test)
	}
	for _, name := range []string{"dispatcher-1", "dispatcher-2", "enqueue"} {
		s := c.Services[name]
		if remembers := slices.Contains(s.Volumes, "dispatcher-state:/var/lib/spillway"); remembers == (name == "enqueue") {
			t.Errorf("%s keeps what it has seen of Redis: %v", name, remembers)
		}
		if s.DependsOn["redis"].Condition != "service_healthy" || !slices.Contains(s.Volumes, "./deploy/compose/dispatcher.yaml:/etc/spillway/dispatcher.yaml:ro") {
			t.Errorf("%s depends on %v and mounts %v", name, s.DependsOn, s.Volumes)
		}
		user := map[bool]string{true: "redis://spillway-producer:${REDIS_PRODUCER_PASSWORD:?", false: "redis://spillway-dispatcher:${REDIS_PASSWORD:?"}[name == "enqueue"]
		if !strings.HasPrefix(s.Environment["REDIS_URL"], user) {
			t.Errorf("%s reaches Redis as %s", name, s.Environment["REDIS_URL"])
		}
		for _, token := range []string{"DISPATCHER_TOKEN", "METRICS_TOKEN"} {
			if asks := strings.HasPrefix(s.Environment[token], "${"+token+":?"); asks == (name == "enqueue") || (name == "enqueue") != (s.Environment[token] == "") {
				t.Errorf("%s has %s %q", name, token, s.Environment[token])
			}
		}
	}
}

func TestComposeConfigurationIsValid(t *testing.T) {
	t.Parallel()
	env := func(name string) (string, bool) {
		value, set := map[string]string{"DISPATCHER_TOKEN": "a-token-for-the-test", "METRICS_TOKEN": "a-token-for-metrics", "REDIS_URL": "redis://redis:6379/0"}[name]
		return value, set
	}
	c, err := config.Load("../deploy/compose/dispatcher.yaml", config.Options{Secrets: true, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	services := compose(t).Services
	for _, part := range regexp.MustCompile(`//([a-z]+):`).FindAllStringSubmatch(text(t, "../deploy/compose/dispatcher.yaml"), -1) {
		if _, ok := services[part[1]]; !ok {
			t.Errorf("the configuration speaks of the host %s, which is not a service", part[1])
		}
	}
	if len(c.Names()) == 0 {
		t.Error("no gateway")
	}
}

func TestDockerfileShipsBothProgramsAndNoRoot(t *testing.T) {
	t.Parallel()
	file := text(t, "../Dockerfile")
	for _, line := range []string{
		"FROM scratch", "USER 65532:65532", `ENTRYPOINT ["/dispatcher"]`, "CGO_ENABLED=0", "/etc/ssl/certs/ca-certificates.crt",
		"/out/dispatcher /dispatcher", "/out/enqueue /enqueue", "./cmd/dispatcher", "./cmd/enqueue",
	} {
		if !strings.Contains(file, line) {
			t.Errorf("the Dockerfile lacks %q", line)
		}
	}
	least := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(text(t, "../go.mod"))[1]
	with := regexp.MustCompile(`(?m)^FROM golang:(\S+)@`).FindStringSubmatch(file)
	if with == nil || version.Lang("go"+with[1]) != version.Lang("go"+least) || version.Compare("go"+with[1], "go"+least) < 0 {
		t.Errorf("the Dockerfile builds with %v: want go.mod's %s, or one that mends it", with, least)
	}
}

// A tag can be moved to another image, or to other code; a digest can't.
func TestWhatIsFetchedIsNamedByDigest(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`^[^\s@:]+:[^\s@:]+@sha256:[0-9a-f]{64}$`)
	for name, s := range compose(t).Services {
		if s.Image != "spillway" && !pinned.MatchString(s.Image) {
			t.Errorf("%s runs %s, which names no version or no digest", name, s.Image)
		}
	}
	file := text(t, "../Dockerfile")
	if strings.Contains(file, "syntax=") {
		t.Error("the Dockerfile has a frontend fetched")
	}
	for _, m := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(file, -1) {
		if m[1] != "scratch" && !pinned.MatchString(m[1]) {
			t.Errorf("the Dockerfile begins from %s, which names no version or no digest", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`uses: (.*)`).FindAllStringSubmatch(text(t, "../.github/workflows/ci.yml"), -1) {
		if !regexp.MustCompile(`^[a-z/-]+@[0-9a-f]{40} # v[0-9.]+$`).MatchString(m[1]) {
			t.Errorf("the workflow runs %s, which names no commit or no version", m[1])
		}
	}
}

// Prometheus reads /metrics with a token that lets it do nothing else, and Grafana asks who looks.
func TestMonitoringHasATokenOfItsOwn(t *testing.T) {
	t.Parallel()
	if s := compose(t).Services; !slices.Equal(s["prometheus"].Secrets, []string{"metrics_token"}) ||
		s["grafana"].Environment["GF_SECURITY_ADMIN_PASSWORD__FILE"] != "/run/secrets/metrics_token" || s["grafana"].Environment["GF_AUTH_ANONYMOUS_ENABLED"] != "" {
		t.Errorf("prometheus has %v, and grafana %v", s["prometheus"].Secrets, s["grafana"].Environment)
	}
	for file, want := range map[string]string{
		"../docker-compose.yml":                "metrics_token: {environment: METRICS_TOKEN}",
		"../deploy/prometheus/prometheus.yml":  "credentials_file: /run/secrets/metrics_token}",
		"../deploy/compose/dispatcher.yaml":    `{name: prometheus, role: metrics, secret: "${METRICS_TOKEN}"}`,
		"../deploy/kubernetes/spillway.yaml":   `{name: prometheus, role: metrics, secret: "${METRICS_TOKEN}"}`,
		"../deploy/kubernetes/monitoring.yaml": "credentials: {name: spillway, key: METRICS_TOKEN}",
	} {
		if !strings.Contains(text(t, file), want) {
			t.Errorf("%s lacks %s", file, want)
		}
	}
}
