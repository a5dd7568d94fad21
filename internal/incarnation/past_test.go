package incarnation

import (
	"slices"
	"testing"
)

// A look compares with what has to do with the data alone: with three thousand gateways each would look at all others otherwise.
func TestAPastTellsWhatWasSeenOfTheSameDataUnderOtherNames(t *testing.T) {
	t.Parallel()
	p := NewPast(map[string]Memory{"c": {"x y", 3}, "a": {"x", 1}, "b": {"z", 2}, "own": {"x z", 4}})
	p.Put("b", Memory{"y x x", 5})
	p.Put("a", Memory{"w", 6})
	for line, want := range map[string][]Memory{
		"x": {{"y x x", 5}, {"x y", 3}}, "y x": {{"y x x", 5}, {"x y", 3}}, "w": {{"w", 6}}, "z": nil, "": nil,
	} {
		if got := p.others("own", line); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
	if m, known := p.Of("b"); !known || m.At != 5 {
		t.Errorf("%v, %v", m, known)
	}
	if _, known := p.Of("d"); known || (*Past)(nil).others("own", "x") != nil {
		t.Error("something was seen of what nobody saw")
	}
}
