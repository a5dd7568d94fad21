package ledger_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/internal/testkit"
)

// A brakesDisk is the append-only file of a redis-server that is killed.
type brakesDisk struct {
	server *testkit.RedisServer
	loses  bool  // writes that were answered may be lost: appendfsync everysec
	size   int64 // of the file when it was copied; 0: it was not
	kills  int
}

func (d *brakesDisk) file(w *brakesWorld) string {
	files, err := filepath.Glob(filepath.Join(d.server.Dir(), "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		w.t.Fatalf("append-only files: %v, %v", files, err)
	}
	return files[0]
}

// written waits until the file has everything that Redis has answered. Under everysec, a write waits up to 2 s while an fsync is in progress. In the world's time that may be
// minutes, and dispatchers remember only seconds.
func (d *brakesDisk) written(w *brakesWorld) {
	w.t.Helper()
	testkit.Eventually(w.t, 0, "the append-only file to have all that was answered", func() bool {
		return strings.Contains(w.c.Info(w.ctx, "persistence").Val(), "aof_buffer_length:0\r")
	})
}

// copy notes how long the file is now.
func (d *brakesDisk) copy(w *brakesWorld) {
	if !d.loses {
		return
	}
	d.written(w)
	info, err := os.Stat(d.file(w))
	w.must(err)
	d.size = info.Size()
}

// kill ends the server as kill -9 does, and starts it again. What was answered is in the file. Under everysec the dispatchers can't know that, and behave as after a loss.
func (d *brakesDisk) kill(w *brakesWorld) {
	d.written(w)
	d.server.Kill()
	d.restart(w)
	if d.loses {
		w.c.HSet(w.ctx, w.keys.Hold(), "lost", w.now)
	}
}

// cut ends the server as the end of its machine does: the file has only what had reached the disk.
func (d *brakesDisk) cut(w *brakesWorld) {
	d.server.Kill()
	w.must(os.Truncate(d.file(w), d.size))
	d.restart(w)
}

func (d *brakesDisk) restart(w *brakesWorld) {
	d.kills++
	d.server.Restart()
	testkit.Eventually(w.t, 0, "the server to be back", func() bool {
		return w.c.Ping(w.ctx).Err() == nil && w.rig.together.Ping(w.ctx).Err() == nil
	})
}

// The same holds for a redis-server with an append-only file that is flushed, killed, and, with appendfsync everysec, loses the last seconds.
func TestBrakesHoldOverAnAppendOnlyFile(t *testing.T) {
	testkit.OneGoroutine(t)
	for _, fsync := range []string{"always", "everysec"} {
		t.Run(fsync, func(t *testing.T) {
			t.Parallel()
			server := testkit.Server(t, "--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0")
			rig := rigOf(t, server.URL(), server.Client())
			refused, calls, kills := 0, 0, 0
			for seed := range uint64(testkit.Often(2, 40)) {
				w := newBrakesWorld(t, rig, 1000+seed)
				w.disk = &brakesDisk{server: server, loses: fsync == "everysec"}
				for range 2 {
					if text := w.play(80); text != "" {
						t.Fatalf("seed %d: %s", 1000+seed, text)
					}
					w.disk.kill(w)
					if w.copy(); w.mayGoBack() {
						w.loseSome()
					}
				}
				refused, calls, kills = refused+w.refused, calls+len(w.calls), kills+w.disk.kills
			}
			t.Logf("%d calls, %d openings kept back, the server killed %d times", calls, refused, kills)
			if calls < 10 || kills < 2 {
				t.Errorf("%d calls made, the server killed %d times: that shows nothing", calls, kills)
			}
		})
	}
}

// loseSome makes some calls, and lets the machine die on which Redis runs.
func (w *brakesWorld) loseSome() {
	for range 6 {
		w.accept("park", w.job())
		w.call(w.proc())
	}
	w.goneBack()
}
