package testkit

import (
	_ "embed" // the library is a file
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

//go:embed testdata/skew.c
var skewSource []byte

// Clock is the wall clock of one redis-server.
type Clock struct {
	t  testing.TB
	mu sync.Mutex
	f  *os.File
	skew
}

// skew is what testdata/skew.c reads.
type skew struct{ Turn, Ahead, PPM, Since int64 }

// SkewedServer starts a redis-server like Server, and returns its clock, which is right at first. It needs a C compiler and Linux.
func SkewedServer(t testing.TB, args ...string) (*RedisServer, *Clock) {
	t.Helper()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "skew.c"), filepath.Join(dir, "skew.so")
	write(t, source, string(skewSource))
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("a C compiler is needed to build %s: %v\n%s", source, err, out)
	}
	f, err := os.Create(filepath.Join(dir, "skew"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	c := &Clock{t: t, f: f}
	c.write()
	return serve(t, launchParams{dir: t.TempDir(), args: append(volatile(), args...), env: []string{"LD_PRELOAD=" + library, "SKEW=" + f.Name()}}), c
}

// Step sets the clock ahead, or back if d is negative.
func (c *Clock) Step(d time.Duration) { c.change(d, 0) }

// Slew makes the clock run too fast by ppm parts in a million, or too slow if ppm is negative. Zero ends it.
func (c *Clock) Slew(ppm int64) { c.change(0, ppm) }

// change reads the clock and changes it in one step. Step ends a slew.
func (c *Clock) change(d time.Duration, ppm int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().UnixMicro()
	c.Turn++
	c.write()
	c.Ahead += (now-c.Since)*c.PPM/1_000_000 + d.Microseconds()
	c.PPM, c.Since = ppm, now
	c.write()
	c.Turn++
	c.write()
}

func (c *Clock) write() {
	c.t.Helper()
	buf, err := binary.Append(nil, binary.NativeEndian, c.skew)
	if err == nil {
		_, err = c.f.WriteAt(buf, 0)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
