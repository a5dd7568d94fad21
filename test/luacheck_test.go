package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"spillway/internal/bucket"
	_ "spillway/internal/cli" // every package with scripts
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Luacheck reads the scripts as Redis gets them: put together, with the names that a record's fields have there.
func TestTheScriptsPassLuacheck(t *testing.T) {
	t.Parallel()
	linter, err := exec.LookPath("luacheck")
	if err != nil {
		t.Skip("luacheck is not installed here: make lint runs it")
	}
	for _, name := range job.Algorithms() {
		alg, err := bucket.NewAlgorithm(name, []job.Limit{{N: 100, Window: time.Second}}, 100, 10)
		if err != nil {
			t.Fatal(err)
		}
		record.Accept(alg.Lua(), record.Form{Feed: true, Flows: true, Approvals: true})
		record.Accept(alg.Lua(), record.Form{Flows: true})
		record.Readmit(alg.Lua(), true)
	}
	record.Told()
	dir, texts := t.TempDir(), redisdb.Texts()
	if len(texts) < 40 {
		t.Fatalf("%d scripts were put together", len(texts))
	}
	args := []string{"--no-config", "--no-color", "--codes", "--std", "lua51", "--no-max-line-length", "--ignore", "211", "221", "42.", "43.",
		"--read-globals", "redis", "cjson", "cmsgpack", "bit", "KEYS", "ARGV", "--", dir}
	for i, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.lua", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(linter, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, bytes.ReplaceAll(out, []byte(dir+"/"), nil))
	}
}
