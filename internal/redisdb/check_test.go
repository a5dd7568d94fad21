package redisdb

import (
	"strings"
	"testing"

	"spillway/internal/testkit"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	aof := []string{"--appendonly", "yes"}
	for name, c := range map[string]struct {
		args []string
		want []string // severity and part of the message of each finding
	}{
		"as it should be":     {aof, nil},
		"nothing on disk":     {nil, []string{"warn NOTHING ON DISK"}},
		"snapshots only":      {[]string{"--save", "60 1"}, []string{"warn snapshots"}},
		"evicting":            {append(aof, "--maxmemory-policy", "volatile-lru"), []string{"refuse maxmemory-policy volatile-lru"}},
		"fsync off":           {append(aof, "--appendfsync", "no"), []string{"warn appendfsync no"}},
		"CONFIG renamed":      {append(aof, "--rename-command", "CONFIG", ""), []string{"note CONFIG is forbidden"}},
		"CONFIG renamed, RAM": {[]string{"--rename-command", "CONFIG", ""}, []string{"warn no append-only file"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := open(t, testkit.Server(t, c.args...).URL(), Options{}).Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			compare(t, found, c.want)
		})
	}
}

func compare(t *testing.T, found []Finding, want []string) {
	t.Helper()
	if len(found) != len(want) {
		t.Fatalf("found %v, want %v", found, want)
	}
	for i, f := range found {
		severity, text, _ := strings.Cut(want[i], " ")
		if string(f.Severity) != severity || !strings.Contains(f.Message, text) || f.Hint == "" {
			t.Errorf("found %+v, want %s", f, want[i])
		}
	}
}

func TestCheckWithoutTheRightToAsk(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t, "--appendonly", "yes")
	if err := s.Client().Do(t.Context(), "ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all", "-config").Err(); err != nil {
		t.Fatal(err)
	}
	found, err := open(t, "redis://app:p@"+s.Addr()+"/0", Options{}).Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	compare(t, found, []string{"note CONFIG is forbidden"})
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]Severity{
		"5.0.14": Refuse, "6.0.20": Refuse, "6.2.0": "", "6.10.1": "", "7.0.15": "", "10.0.0": "", "255.255.255": "", "": Warn, "unstable": Warn,
	} {
		found := checkVersion(version)
		if want == "" && len(found) > 0 || want != "" && (len(found) != 1 || found[0].Severity != want) {
			t.Errorf("%q: %v, want %q", version, found, want)
		}
	}
}

func TestCheckOnAReplica(t *testing.T) {
	t.Parallel()
	primary := testkit.Server(t)
	replica := testkit.Server(t, "--appendonly", "yes", "--replicaof", strings.Replace(primary.Addr(), ":", " ", 1))
	found, err := open(t, replica.URL(), Options{}).Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	compare(t, found, []string{"warn replica"})
}

func TestCheckReplicas(t *testing.T) {
	t.Parallel()
	primary, _ := pair(t)
	if err := primary.Client().ConfigSet(t.Context(), "appendonly", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	for wait, want := range []string{"note wait_replicas is 0", "note if one replica is away", "warn wait_replicas is 2, and Redis has 1 replicas"} {
		found, err := open(t, primary.URL(), Options{WaitReplicas: wait}).Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		compare(t, found, []string{want})
	}
	if found := checkReplicas(1, 2); len(found) > 0 {
		t.Errorf("one more than needed: %v", found)
	}
}

func TestCheckSaysWhenRedisIsAway(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	db := open(t, s.URL(), Options{})
	s.Kill()
	if _, err := db.Check(t.Context()); !Away(err) {
		t.Error(err)
	}
}
