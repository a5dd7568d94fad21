package test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

type alertFile struct {
	Groups []struct {
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

func alerts(t *testing.T) alertFile {
	t.Helper()
	var f alertFile
	if err := yaml.Unmarshal([]byte(text(t, "../deploy/prometheus/alerts.yml")), &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Groups) == 0 || len(f.Groups[0].Rules) == 0 {
		t.Fatal("no alerts")
	}
	return f
}

// Each alert has a section that says what to do, and test cases in which it fires and in which it doesn't.
func TestEachAlertIsExplainedAndTested(t *testing.T) {
	t.Parallel()
	runbook, cases := text(t, "../docs/runbook.md"), text(t, "../deploy/prometheus/alerts_test.yml")
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			if !strings.Contains(runbook, "\n## "+r.Alert+"\n") || r.Annotations["runbook"] != "docs/runbook.md#"+strings.ToLower(r.Alert) {
				t.Errorf("%s: no section in docs/runbook.md, or its link is %q", r.Alert, r.Annotations["runbook"])
			}
			if severity := r.Labels["severity"]; severity != "page" && severity != "warn" {
				t.Errorf("%s: severity %q, want page or warn", r.Alert, severity)
			}
			if !strings.Contains(cases, "name: "+r.Alert+" goes off\n") || !strings.Contains(cases, "name: "+r.Alert+" stays quiet\n") {
				t.Errorf("%s: alerts_test.yml lacks a case in which it goes off, or one in which it stays quiet", r.Alert)
			}
		}
	}
}

func TestTheDashboardIsWhereGrafanaLooksForIt(t *testing.T) {
	t.Parallel()
	var d struct {
		UID    string `json:"uid"`
		Panels []struct {
			Title      string                  `json:"title"`
			Datasource struct{ UID string }    `json:"datasource"`
			Targets    []struct{ Expr string } `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(text(t, "../deploy/grafana/dashboards/spillway.json")), &d); err != nil {
		t.Fatal(err)
	}
	source := regexp.MustCompile(`uid: (\w+)`).FindStringSubmatch(text(t, "../deploy/grafana/provisioning/datasources/prometheus.yml"))[1]
	for _, p := range d.Panels {
		if p.Datasource.UID != source || len(p.Targets) == 0 {
			t.Errorf("panel %q asks the data source %q %d questions; provisioned is %q", p.Title, p.Datasource.UID, len(p.Targets), source)
		}
	}
	mounts := strings.Join(compose(t).Services["grafana"].Volumes, " ")
	path := regexp.MustCompile(`path: ([^}\s]+)`).FindStringSubmatch(text(t, "../deploy/grafana/provisioning/dashboards/spillway.yml"))[1]
	if !strings.Contains(mounts, "./deploy/grafana/dashboards:"+path+":ro") || filepath.Ext(path) != "" || len(d.Panels) == 0 {
		t.Errorf("the dashboards are looked for in %s, and mounted as %s", path, mounts)
	}
}
