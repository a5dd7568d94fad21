package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/httpapi"
)

func deployed(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// understood fails the test unless the program has that command with these flags.
func understood(t *testing.T, where string, args []string) {
	t.Helper()
	root := newCommand(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	cmd, rest, err := root.Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil || cmd == root {
		t.Errorf("%s starts %q: %v", where, args, err)
	}
}

// answers fails the test unless the HTTP side serves that path.
func answers(t *testing.T, where, path string) {
	t.Helper()
	api := httpapi.New(httpapi.Config{Ready: func(context.Context) error { return nil }, Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
	if w.Code != http.StatusOK {
		t.Errorf("%s asks for %q, which answers %d", where, path, w.Code)
	}
}

// pod is the part of the Deployment about its container.
type pod struct {
	Grace    int `yaml:"terminationGracePeriodSeconds"`
	Security struct {
		NonRoot bool `yaml:"runAsNonRoot"`
		User    int  `yaml:"runAsUser"`
	} `yaml:"securityContext"`
	Containers []struct {
		Args    []string `yaml:"args"`
		EnvFrom []struct {
			Secret struct{ Name string } `yaml:"secretRef"`
		} `yaml:"envFrom"`
		Ports []struct {
			Name string
			Port int `yaml:"containerPort"`
		}
		Startup   probe `yaml:"startupProbe"`
		Liveness  probe `yaml:"livenessProbe"`
		Readiness probe `yaml:"readinessProbe"`
		Security  struct {
			ReadOnly     bool `yaml:"readOnlyRootFilesystem"`
			Escalation   bool `yaml:"allowPrivilegeEscalation"`
			Capabilities struct{ Drop []string }
		} `yaml:"securityContext"`
	}
}

type probe struct {
	Get struct{ Path, Port string } `yaml:"httpGet"`
}

// manifest is what is read of a document in deploy/kubernetes.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Secrets  map[string]string `yaml:"stringData"`
	Spec     struct {
		Template struct{ Spec pod }
	}
}

func manifests(t *testing.T, file string) map[string]manifest {
	t.Helper()
	all := map[string]manifest{}
	for _, text := range strings.Split(deployed(t, file), "\n---\n") {
		var m manifest
		if err := yaml.Unmarshal([]byte(text), &m); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[m.Kind] = m
	}
	return all
}

func TestTheDeploymentStartsWhatTheProgramUnderstands(t *testing.T) {
	t.Parallel()
	const where = "deploy/kubernetes/spillway.yaml"
	all := manifests(t, where)
	p := all["Deployment"].Spec.Template.Spec
	c := p.Containers[0]
	understood(t, where, c.Args)
	if c.Startup.Get.Path != "/healthz" || c.Liveness.Get.Path != "/healthz" || c.Readiness.Get.Path != "/readyz" {
		t.Errorf("probes ask %v %v %v: Redis away must take a pod out, and restart none", c.Startup, c.Liveness, c.Readiness)
	}
	for _, ask := range []probe{c.Startup, c.Liveness, c.Readiness} {
		answers(t, where, ask.Get.Path)
		if ask.Get.Port != c.Ports[0].Name {
			t.Errorf("a probe asks port %s, the container has %s", ask.Get.Port, c.Ports[0].Name)
		}
	}
	if !p.Security.NonRoot || p.Security.User == 0 || !c.Security.ReadOnly || c.Security.Escalation || !slices.Equal(c.Security.Capabilities.Drop, []string{"ALL"}) {
		t.Errorf("the container may too much: %+v %+v", p.Security, c.Security)
	}
	token := all["Secret"].Secrets["DISPATCHER_TOKEN"]
	env := func(name string) (string, bool) {
		v, ok := all["Secret"].Secrets[name]
		if name == "SPILLWAY_KEY" {
			return strings.Repeat("k", 43) + "=", ok
		}
		return strings.Replace(v, token, "a-token-of-"+name, 1), ok
	}
	asItIs := func(string) (string, bool) { return token, true }
	if _, err := config.Parse("d.yaml", []byte("token: ${T}\n"), config.Options{Env: asItIs}); err == nil || !strings.Contains(err.Error(), "placeholder") {
		t.Errorf("the Secret as it is would be taken: %v", err)
	}
	cfg, err := config.Parse("dispatcher.yaml", []byte(all["ConfigMap"].Data["dispatcher.yaml"]), config.Options{Secrets: true, Env: env})
	if err != nil {
		t.Fatalf("the ConfigMap's configuration, with the Secret's variables: %v", err)
	}
	if cfg.Encryption == nil || !strings.HasPrefix(cfg.Redis.Reveal(), "rediss://") {
		t.Error("the example stores payloads in plain, or reaches Redis without TLS")
	}
	if least := longestCall(cfg.Gateways) + 2*tidyTime; time.Duration(p.Grace)*time.Second < least {
		t.Errorf("a pod has %d s to end, calls under way may take %v", p.Grace, least)
	}
	if _, port, _ := strings.Cut(cfg.Listen, ":"); port != "9400" || c.Ports[0].Port != 9400 || all["Service"].Metadata.Name == "" {
		t.Errorf("it listens on %s, the container's port is %d", cfg.Listen, c.Ports[0].Port)
	}
	answers(t, "deploy/kubernetes/monitoring.yaml", regexp.MustCompile(`path: (\S+)`).FindStringSubmatch(deployed(t, "deploy/kubernetes/monitoring.yaml"))[1])
}

func TestComposeStartsWhatTheProgramUnderstands(t *testing.T) {
	t.Parallel()
	var c struct {
		Services map[string]struct {
			Image, Build string
			Command      []string
			Entrypoint   []string
			Healthcheck  struct{ Test []string }
			Grace        string `yaml:"stop_grace_period"`
		}
	}
	const where = "docker-compose.yml"
	if err := yaml.Unmarshal([]byte(deployed(t, where)), &c); err != nil {
		t.Fatal(err)
	}
	typed := regexp.MustCompile(`(?m)^# +docker compose exec (\S+) /dispatcher (.*)$`).FindStringSubmatch(deployed(t, where))
	if typed == nil {
		t.Fatalf("%s does not say how to look at the gateways", where)
	}
	if understood(t, where, strings.Fields(typed[2])); c.Services[typed[1]].Image != "spillway" {
		t.Errorf("%s looks at the gateways in %s", where, typed[1])
	}
	for name, s := range c.Services {
		if s.Image != "spillway" || len(s.Entrypoint) > 0 {
			continue
		}
		understood(t, name, s.Command)
		if s.Command[0] != "run" {
			continue
		}
		if h := s.Healthcheck.Test; len(h) < 3 || h[0] != "CMD" || h[1] != "/dispatcher" {
			t.Errorf("%s has the health check %q", name, h)
		} else {
			understood(t, name, h[2:])
		}
	}
}

func TestTheUnitStartsWhatTheProgramUnderstands(t *testing.T) {
	t.Parallel()
	const where = "deploy/systemd/spillway@.service"
	set := map[string][]string{}
	section := ""
	for i, line := range strings.Split(deployed(t, where), "\n") {
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[' && line[len(line)-1] == ']':
			section = strings.Trim(line, "[]")
		case !ok || section == "" || strings.TrimSpace(key) != key:
			t.Errorf("%s:%d: %q is not a setting", where, i+1, line)
		default:
			set[section+"."+key] = append(set[section+"."+key], value)
		}
	}
	start := strings.Fields(strings.ReplaceAll(strings.Join(set["Service.ExecStart"], " "), "%i", "9400"))
	if len(start) < 2 || filepath.Base(start[0]) != name {
		t.Fatalf("it starts %q", start)
	}
	understood(t, where, start[1:])
	for key, want := range map[string]string{
		"DynamicUser": "yes", "ProtectSystem": "strict", "NoNewPrivileges": "yes", "Restart": "on-failure", "StateDirectory": "spillway",
		"CapabilityBoundingSet": "", "KillSignal": "SIGTERM", "ExecReload": "/bin/kill -HUP $MAINPID", "EnvironmentFile": "-/etc/spillway/secrets.env",
	} {
		if got := set["Service."+key]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	least := longestCall([]config.Gateway{config.DefaultGateway()}) + 2*tidyTime
	if stop, err := time.ParseDuration(set["Service.TimeoutStopSec"][0] + "s"); err != nil || stop < least {
		t.Errorf("it has %v to stop (%v), calls under way may take %v", stop, err, least)
	}
	verifyUnit(t, where, start[0])
}

// verifyUnit runs systemd-analyze verify if it is installed. The program itself need not be installed.
func verifyUnit(t *testing.T, file, program string) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Logf("no systemd-analyze here: %s is held against the program alone", file)
		return
	}
	unit := filepath.Join(t.TempDir(), "spillway@9400.service")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(deployed(t, file), program, "/bin/true")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput(); err != nil || strings.Contains(string(out), "spillway@") { // it may grumble about the machine's own units
		t.Errorf("systemd-analyze verify %s: %v\n%s", file, err, out)
	}
}
