package testkit

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// RunProperties is the TestMain of a package that draws properties with rapid. It has rapid draw each property less often than its 100 times,
// and the same values each time, so that a failure comes from the change under test and not from the draw.
// With -long (make long) rapid draws 100 times, and other values each time. The flags of rapid overrule both.
func RunProperties(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]int{"rapid.checks": Often(30, 100), "rapid.seed": Often(1, 0)} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			_ = f.Value.Set(strconv.Itoa(value))
		}
	}
	os.Exit(m.Run())
}
