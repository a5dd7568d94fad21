package bucket

import (
	"testing"

	"spillway/internal/testkit"
)

func TestMain(m *testing.M) { testkit.RunProperties(m) }
