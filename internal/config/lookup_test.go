package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// place puts files beside a configuration, and returns its name.
func place(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "dispatcher.yaml")
}

const withFile = "gateways:\n  stripe:\n    request: {url: \"https://x.example/\", headers: {Authorization: \"Bearer ${file:KEY}\"}}\n    leak: {limits: [1/s]}\n"

func TestAValueFromAFile(t *testing.T) {
	t.Parallel()
	file := place(t, map[string]string{"stripe.key": canary + "\r\n"})
	for name, path := range map[string]string{"beside the configuration": "stripe.key", "anywhere": filepath.Join(filepath.Dir(file), "stripe.key")} {
		c, err := Parse(file, []byte(strings.Replace(withFile, "KEY", path, 1)), Options{Secrets: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := c.Gateways[0].Request.Headers["Authorization"].Reveal(); got != "Bearer "+canary {
			t.Errorf("%s: %q", name, got)
		}
	}
	if _, err := Parse(file, []byte(strings.Replace(withFile, "KEY", "away.key", 1)), Options{}); err != nil {
		t.Errorf("a command that makes no calls needs no secret of a gateway: %v", err)
	}
}

// A pipe that is never written to would make a start wait for ever and, worse, a reload.
func TestASecretIsReadFromARegularFileAlone(t *testing.T) {
	t.Parallel()
	file := place(t, nil)
	pipe := filepath.Join(filepath.Dir(file), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pipe", filepath.Join(filepath.Dir(file), "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pipe", "link", "."} {
		read := make(chan error, 1)
		go func() {
			_, err := Parse(file, []byte(strings.Replace(withFile, "KEY", name, 1)), Options{Secrets: true})
			read <- err
		}()
		select {
		case err := <-read:
			if err == nil || !strings.Contains(err.Error(), "can't be read: it is not a regular file") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: reading it has no end", name)
		}
	}
}

func TestAFileThatIsTooLargeIsNotCutOff(t *testing.T) {
	t.Parallel()
	file := place(t, map[string]string{"fits": strings.Repeat("a", maxSecretFile), "large": strings.Repeat("a", maxSecretFile) + "b"})
	for name, fault := range map[string]string{"fits": "", "large": "${file:large} can't be read: it is larger than 1 MiB"} {
		_, err := Parse(file, []byte(strings.Replace(withFile, "KEY", name, 1)), Options{Secrets: true})
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}
