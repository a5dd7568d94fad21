//go:build race

package testkit

// Race says that the test was built with the race detector.
const Race = true
