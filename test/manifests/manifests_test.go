// Package manifests holds docker-compose.yml and the Kubernetes manifests against the programs that read them: compose's own
// loader, and Kubernetes' own types, strictly. It is a module of its own, so that neither is a dependency of Spillway.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

func load(t *testing.T, env []string, profiles ...string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../../docker-compose.yml"}, cli.WithEnv(env), cli.WithProfiles(profiles), cli.WithResolvedPaths(true), cli.WithName("spillway"))
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(t.Context())
}

// secrets are what the head of docker-compose.yml exports.
var secrets = []string{"DISPATCHER_TOKEN=t0ken", "METRICS_TOKEN=metr1cs", "REDIS_PASSWORD=s3cret", "REDIS_PRODUCER_PASSWORD=an0ther"}

// As `docker compose config` does, with each choice of profiles.
func TestComposeTakesTheFile(t *testing.T) {
	t.Parallel()
	always := []string{"dispatcher-1", "dispatcher-2", "provider", "redis"}
	for _, c := range []struct {
		profiles, services []string
	}{
		{nil, always},
		{[]string{"tools"}, append([]string{"enqueue"}, always...)},
		{[]string{"monitoring"}, append([]string{"grafana", "prometheus"}, always...)},
		{[]string{"tools", "monitoring"}, append([]string{"enqueue", "grafana", "prometheus"}, always...)},
	} {
		p, err := load(t, secrets, c.profiles...)
		if err != nil {
			t.Errorf("profiles %v: %v", c.profiles, err)
			continue
		}
		slices.Sort(c.services)
		if got := p.ServiceNames(); !slices.Equal(got, c.services) {
			t.Errorf("profiles %v start %v, want %v", c.profiles, got, c.services)
		}
		for _, s := range p.Services {
			for _, v := range s.Volumes {
				if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
					t.Errorf("%s mounts what is not there: %v", s.Name, err)
				}
			}
		}
	}
	for i := range secrets {
		if _, err := load(t, slices.Delete(slices.Clone(secrets), i, i+1)); err == nil {
			t.Errorf("it starts without %s", secrets[i])
		}
	}
}

func TestADispatcherInComposeHasAHealthCheck(t *testing.T) {
	t.Parallel()
	p, err := load(t, secrets)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dispatcher-1", "dispatcher-2", "redis"} {
		if s := p.Services[name]; s.HealthCheck == nil || len(s.HealthCheck.Test) < 2 || *s.HealthCheck.Retries == 0 {
			t.Errorf("%s: %+v", name, s.HealthCheck)
		}
	}
}

// serviceMonitor is what we use of the Prometheus operator's.
type serviceMonitor struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		JobLabel  string             `json:"jobLabel"`
		Selector  meta.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port          string `json:"port"`
			Path          string `json:"path"`
			Interval      string `json:"interval"`
			Authorization struct {
				Type        string                 `json:"type"`
				Credentials core.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// object returns an empty value of a manifest's kind.
func object(kind string) any {
	switch kind {
	case "v1 ServiceAccount":
		return &core.ServiceAccount{}
	case "v1 ConfigMap":
		return &core.ConfigMap{}
	case "v1 Secret":
		return &core.Secret{}
	case "v1 Service":
		return &core.Service{}
	case "apps/v1 Deployment":
		return &apps.Deployment{}
	case "batch/v1 Job":
		return &batch.Job{}
	case "batch/v1 CronJob":
		return &batch.CronJob{}
	case "policy/v1 PodDisruptionBudget":
		return &policy.PodDisruptionBudget{}
	case "networking.k8s.io/v1 NetworkPolicy":
		return &networking.NetworkPolicy{}
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return &serviceMonitor{}
	}
	return nil
}

// kubernetes returns the files of the manifests.
func kubernetes(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"../../deploy/kubernetes/*.yaml", "../../deploy/kubernetes/enqueue/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, files, err)
		}
		all = append(all, files...)
	}
	return all
}

// Every document is of a kind that we know, and each of its fields is one of that kind, of the right type.
func TestKubernetesKnowsEveryField(t *testing.T) {
	t.Parallel()
	documents := 0
	for _, file := range kubernetes(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := all.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			var is struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal(document, &is); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			into := object(is.APIVersion + " " + is.Kind)
			if into == nil {
				t.Errorf("%s: a %s %s, which this test does not know", file, is.APIVersion, is.Kind)
				continue
			}
			if err := yaml.UnmarshalStrict(document, into); err != nil {
				t.Errorf("%s: %s: %v", file, is.Kind, err)
			}
			documents++
		}
	}
	if documents < 11 {
		t.Errorf("%d documents, want 11 at least", documents)
	}
}

// manifest reads the one document of a file.
func manifest[T any](t *testing.T, file string) T {
	t.Helper()
	var into T
	text, err := os.ReadFile(filepath.Join("../../deploy/kubernetes", file))
	if err == nil {
		err = yaml.UnmarshalStrict(text, &into)
	}
	if err != nil {
		t.Fatal(err)
	}
	return into
}

// A billing file goes in once and by the clock, with the same rights, and what is wrong with the file is not a reason to try again.
func TestABillingFileGoesInOnKubernetes(t *testing.T) {
	t.Parallel()
	once := manifest[batch.Job](t, "enqueue/job.yaml").Spec
	nightly := manifest[batch.CronJob](t, "enqueue/cronjob.yaml").Spec
	if nightly.ConcurrencyPolicy != batch.ForbidConcurrent || nightly.TimeZone == nil {
		t.Errorf("the nightly job: %q, zone %v", nightly.ConcurrencyPolicy, nightly.TimeZone)
	}
	for name, spec := range map[string]batch.JobSpec{"once": once, "nightly": nightly.JobTemplate.Spec} {
		rules, pod := spec.PodFailurePolicy.Rules, spec.Template.Spec
		if len(rules) != 1 || rules[0].Action != batch.PodFailurePolicyActionFailJob || !slices.Equal(rules[0].OnExitCodes.Values, []int32{2, 3, 4}) {
			t.Errorf("%s: %+v", name, rules)
		}
		if pod.RestartPolicy != core.RestartPolicyNever { // Kubernetes takes a failure policy with no other
			t.Errorf("%s restarts %s", name, pod.RestartPolicy)
		}
		c := pod.Containers[0]
		if !slices.Equal(c.Command, []string{"/enqueue"}) || *rules[0].OnExitCodes.ContainerName != c.Name || !*c.SecurityContext.ReadOnlyRootFilesystem || len(c.EnvFrom) > 0 {
			t.Errorf("%s: %+v", name, c)
		}
		var mounted []string
		for _, v := range pod.Volumes {
			mounted = append(mounted, v.Name)
		}
		for _, m := range c.VolumeMounts {
			if !slices.Contains(mounted, m.Name) || !m.ReadOnly {
				t.Errorf("%s mounts %+v", name, m)
			}
		}
	}
	policy := manifest[networking.NetworkPolicy](t, "enqueue/network-policy.yaml").Spec.PodSelector.MatchLabels
	for key, value := range once.Template.Labels {
		if policy[key] != value || nightly.JobTemplate.Spec.Template.Labels[key] != value {
			t.Errorf("the network policy is for %v", policy)
		}
	}
}
