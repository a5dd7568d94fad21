package incarnation

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStateDir(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ env, want string }{
		{"STATE_DIRECTORY=/var/lib/spillway XDG_STATE_HOME=/x HOME=/home/ann", "/var/lib/spillway"},
		{"STATE_DIRECTORY=/var/lib/spillway:/var/lib/other", "/var/lib/spillway"},
		{"XDG_STATE_HOME=/x HOME=/home/ann", "/x/spillway"},
		{"XDG_STATE_HOME=relative HOME=/home/ann", "/home/ann/.local/state/spillway"},
		{"HOME=/home/ann", "/home/ann/.local/state/spillway"},
		{"", ""},
	} {
		env := map[string]string{}
		for _, one := range strings.Fields(tc.env) {
			name, value, _ := strings.Cut(one, "=")
			env[name] = value
		}
		dir, err := StateDir(func(name string) string { return env[name] })
		if dir != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %q, %v, want %q", tc.env, dir, err, tc.want)
		}
	}
}

const place = "redis://10.0.0.1:6379/0"

func recall(t *testing.T, s *Store) map[string]Memory {
	t.Helper()
	all, err := s.Recall()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func keep(t *testing.T, s *Store, seen map[string]Memory) {
	t.Helper()
	if err := s.Keep(seen); err != nil {
		t.Fatal(err)
	}
}

// Dispatchers of one machine share the file, and the newest knowledge of each gateway stays.
func TestTheLaterMemoryStays(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	a, b := OpenStore(dir, place), OpenStore(dir, place)
	if len(recall(t, a)) != 0 {
		t.Error("something is remembered that nobody has seen")
	}
	keep(t, a, map[string]Memory{"stripe": {"x", 10}, "adyen": {"y", 10}, "none": {}})
	keep(t, b, map[string]Memory{"stripe": {"x", 9}, "adyen": {"y z", 5}, "paypal": {"p", 1}})
	keep(t, a, map[string]Memory{"adyen": {"y", 11}, "paypal": {"q", 1}})
	keep(t, b, map[string]Memory{"paypal": {"q", 2}})
	want := map[string]Memory{"stripe": {"x", 10}, "adyen": {"y z", 5}, "paypal": {"p q", 2}}
	if got := recall(t, b); !maps.Equal(got, want) {
		t.Errorf("remembered %v, want %v", got, want)
	}
	if other := OpenStore(dir, "redis://10.0.0.1:6379/1"); len(recall(t, other)) != 0 {
		t.Error("another database's memory is this one's")
	}
}

func TestTheFileIsOursAloneAndWholeAlways(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	s := OpenStore(dir, place)
	keep(t, s, map[string]Memory{"stripe": {"x", 10}})
	before, err := os.Stat(s.Path())
	if err != nil || before.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", before, err)
	}
	keep(t, s, map[string]Memory{"stripe": {"x", 9}})
	if after, err := os.Stat(s.Path()); err != nil || !os.SameFile(before, after) {
		t.Errorf("written although nothing is new: %v", err)
	}
	keep(t, s, map[string]Memory{"stripe": {"x", 11}})
	if after, err := os.Stat(s.Path()); err != nil || os.SameFile(before, after) {
		t.Errorf("written in place, where a crash leaves half of it: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAFileThatCannotBeReadIsSaidAndBegunAnew(t *testing.T) {
	t.Parallel()
	s := OpenStore(t.TempDir(), place)
	if err := os.WriteFile(s.Path(), []byte(`{"gateways":{"stri`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recall(); err == nil || !strings.Contains(err.Error(), s.Path()) {
		t.Errorf("%v, want the file's name", err)
	}
	keep(t, s, map[string]Memory{"stripe": {"x", 10}})
	if got := recall(t, s); got["stripe"].At != 10 {
		t.Errorf("remembered %v", got)
	}
}

func TestAnUnwritableDirectoryIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := OpenStore(filepath.Join(file, "below"), place).Keep(map[string]Memory{"stripe": {"x", 10}}); err == nil {
		t.Error("no error for a directory that can't be made")
	}
}
