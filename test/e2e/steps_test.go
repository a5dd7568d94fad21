package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// machine is a world that follows the commands of a page. They run in a directory instead of a machine, and systemctl starts and stops the story's own processes.
type machine struct {
	*world
	page     string
	services map[string]*run   // by the port that the page gives them
	ports    map[string]string // their own, by that
	refusals int               // how many starts ended at once, since Redis was restored
}

// newMachine reads a page of docs/. Its machine has the programs of a directory, a Redis with its configuration file, and the dispatcher's file where systemd expects it.
func newMachine(t *testing.T, page, programs string) *machine {
	t.Helper()
	w := newWorld(t, provider.Config{Limits: perSecond100}, "      key_lifetime: 24h\n    leak: {limits: [100/s], jitter: 50ms}\n    amount: {field: amount, currency: currency}\n    admission: {burst: 10000}\n")
	m := &machine{world: w, page: read(t, "../../docs/"+page), services: map[string]*run{},
		ports: map[string]string{"9400": fmt.Sprint(testkit.FreePort(t)), "9401": fmt.Sprint(testkit.FreePort(t))}}
	for _, dir := range []string{"usr/local/bin", "etc/spillway", "etc/redis", "var/lib/redis", "backup"} {
		if err := os.MkdirAll(filepath.Join(w.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.file("etc/redis/redis.conf", "appendonly yes\ndir "+filepath.Join(w.dir, "var/lib/redis")+"\n")
	w.redis = testkit.Server(t, "--include", filepath.Join(w.dir, "etc/redis/redis.conf"))
	m.config = m.file("etc/spillway/dispatcher.yaml", regexp.MustCompile(`redis: \S+`).ReplaceAllString(read(t, w.config), "redis: "+w.redis.URL()))
	m.bin = filepath.Join(w.dir, "usr/local/bin")
	m.ship(programs, m.bin)
	return m
}

// ship copies both programs to a directory.
func (m *machine) ship(from, to string) {
	m.t.Helper()
	if out, err := exec.Command("install", "-D", "-t", to, filepath.Join(from, "dispatcher"), filepath.Join(from, "enqueue")).CombinedOutput(); err != nil {
		m.t.Fatalf("%v\n%s", err, out)
	}
}

// follow runs the commands of a section of the page, one after the other.
func (m *machine) follow(section string) {
	m.t.Helper()
	_, text, found := strings.Cut(m.page, "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	commands := regexp.MustCompile(`(?m)^(?:    |       )([a-zA-Z].*)$`).FindAllStringSubmatch(text, -1)
	if !found || len(commands) == 0 {
		m.t.Fatalf("the page has no section %q with commands", section)
	}
	for _, c := range commands {
		m.command(strings.TrimPrefix(c[1], "sudo "))
	}
}

func (m *machine) command(line string) {
	m.t.Helper()
	if rest, is := strings.CutPrefix(line, "systemctl "); is {
		verb, unit, _ := strings.Cut(rest, " ")
		m.systemctl(verb, unit)
		return
	}
	if strings.Contains(line, "--after-restore") {
		args := strings.Fields(m.here(line))[2:]
		for i := range args {
			args[i] = strings.Trim(args[i], `"`)
		}
		r := m.dispatcherAsIs(args...)
		testkit.Eventually(m.t, time.Minute, "it to take the operator's word", func() bool { return strings.Contains(r.text(), "restored, as an operator says") })
		r.stop()
		return
	}
	cmd := exec.Command("bash", "-e", "-c", m.here(line))
	cmd.Dir, cmd.Env = m.dir, append(m.env(true), "PATH="+m.bin+":"+os.Getenv("PATH"), "REDIS_URL="+m.redis.URL())
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// here replaces the directories and ports of the page by the machine's own.
func (m *machine) here(line string) string {
	for of, is := range m.ports {
		line = strings.ReplaceAll(line, ":"+of, ":"+is)
	}
	return regexp.MustCompile(`([ '])/(usr|etc|var|backup)\b`).ReplaceAllString(line, "${1}"+m.dir+"/$2")
}

func (m *machine) systemctl(verb, unit string) {
	m.t.Helper()
	if unit == "redis-server" {
		if verb == "stop" {
			m.redis.Stop()
			return
		}
		m.redis.Restart()
		return
	}
	port := strings.TrimPrefix(unit, "spillway@")
	if r := m.services[port]; r != nil && verb != "start" {
		r.stop()
	}
	if verb != "stop" {
		m.start(port)
	}
}

// start starts a dispatcher, and waits until it serves or has refused to.
func (m *machine) start(port string) {
	m.t.Helper()
	r := m.dispatcherAsIs("--listen", "127.0.0.1:"+m.ports[port])
	testkit.Eventually(m.t, time.Minute, "a dispatcher to serve or refuse", func() bool {
		return strings.Contains(r.text(), "msg=serving") || strings.Contains(r.text(), "hint: ")
	})
	m.services[port] = r
	if !strings.Contains(r.text(), "restored from an old snapshot") {
		return
	}
	if err := r.cmd.Wait(); err == nil || r.cmd.ProcessState.ExitCode() != 1 {
		m.t.Errorf("run on a backup: %v, want exit code 1", err)
	}
	m.refusals++
}

// payments writes a file of n jobs whose ids begin with a name.
func (m *machine) payments(path, name string, n int) string {
	m.t.Helper()
	return m.file(path, strings.ReplaceAll(read(m.t, m.jobs("jobs", n)), `"inv-`, `"`+name+"-"))
}

func (m *machine) done(n int) {
	m.t.Helper()
	m.shown(m.t, time.Minute, fmt.Sprintf("%d jobs to be done", n), func() bool { return m.status().Done == n })
}

// The commands of docs/upgrading.md are right, to the new version and back, while jobs wait and are called.
func TestTheStepsOfAnUpgradeAreRight(t *testing.T) {
	t.Parallel()
	old := needsHistory(t)
	m := newMachine(t, "upgrading.md", old)
	m.ship(bin, filepath.Join(m.dir, "bin"))
	m.ship(old, filepath.Join(m.dir, "before"))
	m.start("9400")
	m.start("9401")
	m.ok("enqueue", "-g", "stripe", "-f", m.payments("first.ndjson", "first", 600), "-q")
	m.follow("The steps")
	m.installed(bin)
	m.follow("The format of the data")
	m.ok("enqueue", "-g", "stripe", "-f", m.payments("second.ndjson", "second", 200), "-q")
	m.follow("Go back")
	m.installed(old)
	m.done(800)
	if seen := m.strict(); seen.Charged != 800 || seen.Calls != 800 {
		t.Errorf("%d calls, %d charged; want 800 each", seen.Calls, seen.Charged)
	}
	m.audited("stripe")
}

func (m *machine) installed(from string) {
	m.t.Helper()
	for _, program := range []string{"dispatcher", "enqueue"} {
		if read(m.t, filepath.Join(m.bin, program)) != read(m.t, filepath.Join(from, program)) {
			m.t.Errorf("%s that is installed is not that of %s", program, from)
		}
	}
}

// The commands of docs/backup.md are right. Some jobs are done when the backup is taken, some wait and are called afterwards, and some are enqueued afterwards. After the restore each is done, and none is charged twice.
func TestABackupIsRestoredAsThePageSays(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "backup.md", bin)
	m.provider.Set(provider.Config{Limits: perSecond100, Fates: []provider.Fate{{ID: "declined-*", Status: 402}}})
	m.start("9400")
	m.start("9401")
	m.ok("enqueue", "-g", "stripe", "-f", m.payments("declined.ndjson", "declined", 1), "-q")
	m.ok("enqueue", "-g", "stripe", "-f", m.payments("before.ndjson", "before", 60), "-q")
	m.done(60)
	m.shown(t, time.Minute, "a job to be refused", func() bool { return m.status().Parked["refused"] == 1 })
	m.ok("dispatcher", "dlq", "discard", "--id", "declined-00001", "--why", "a test", "--yes")
	m.systemctl("stop", "spillway@9400")
	m.systemctl("stop", "spillway@9401")
	m.ok("enqueue", "-g", "stripe", "-f", m.payments("waiting.ndjson", "waiting", 40), "-q")
	aged := func(by time.Duration) { // as if it had been taken a minute ago
		t.Helper()
		if err := m.redis.Client().HIncrBy(t.Context(), redisdb.NewKeys("stripe").Alive(), "at", by.Microseconds()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	aged(-time.Minute)
	m.follow("Take one")
	aged(time.Minute)
	m.start("9400")
	m.start("9401")
	m.done(100)
	november := read(t, m.payments("waiting.ndjson", "waiting", 40)) + read(t, m.payments("after.ndjson", "after", 30))
	m.ok("enqueue", "-g", "stripe", "-f", m.file("backup/november.ndjson", november), "-q")
	m.done(130)
	m.follow("Restore")
	if m.refusals != 1 {
		t.Errorf("%d starts were refused after the restore, want 1", m.refusals)
	}
	m.done(130)
	m.settlement()
	m.follow("Check afterwards")
	if seen := m.strict(); seen.Charged != 130 || seen.Replayed != 70 {
		t.Errorf("%d charged, %d answered again; want 130 and 70", seen.Charged, seen.Replayed)
	}
	m.redis.Restart() // the append-only file has all of it
	m.shown(t, time.Minute, "all to be there after another start", func() bool { return m.do("dispatcher", "status").code == 0 && m.status().Done == 130 })
}

// settlement writes the provider's report of its charges.
func (m *machine) settlement() {
	m.t.Helper()
	report, charged := "invoice,gross,currency\n", map[string]bool{}
	for _, c := range m.provider.Calls() {
		var number int
		if _, digits, _ := strings.Cut(c.Key, "-"); c.Status == 200 && !charged[c.Key] {
			fmt.Sscanf(digits, "%d", &number)
			report += fmt.Sprintf("%s,%d.%02d,EUR\n", c.Key, (100+number)/100, (100+number)%100)
			charged[c.Key] = true
		}
	}
	m.file("backup/settlement.csv", report)
}
