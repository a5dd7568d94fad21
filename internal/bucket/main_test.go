package bucket

import (
	flags "flag"
	"os"
	"strconv"
	"testing"

	"spillway/internal/testkit"
)

// TestMain has rapid draw each property less often than its 100 times, and always the same values, so that a failure comes from the change under test and not from the draw.
// With -long (make long) it draws 100 times, and other values each time. The flags of rapid overrule both.
func TestMain(m *testing.M) {
	flags.Parse()
	for name, value := range map[string]int{"rapid.checks": testkit.Often(30, 100), "rapid.seed": testkit.Often(1, 0)} {
		if f := flags.Lookup(name); f.Value.String() == f.DefValue {
			_ = f.Value.Set(strconv.Itoa(value))
		}
	}
	os.Exit(m.Run())
}
