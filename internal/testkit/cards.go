package testkit

import (
	"fmt"
	"math/rand/v2"
)

// CardNumbers returns n card numbers of the largest schemes, of each of their lengths. Each call returns the same numbers.
func CardNumbers(n int) (all []string) {
	schemes := []struct {
		begins string
		length int
	}{{"4", 16}, {"4", 13}, {"4", 19}, {"51", 16}, {"55", 16}, {"2221", 16}, {"2720", 16}, {"34", 15}, {"37", 15}, {"6011", 16}, {"649", 16}, {"65", 19}, {"305", 14}, {"36", 14},
		{"38", 14}, {"3528", 16}, {"3589", 19}, {"62", 16}, {"62", 19}, {"2200", 16}, {"5018", 13}, {"6304", 19}, {"6759", 18}, {"5067", 16}, {"606282", 16}, {"9792", 16}, {"508", 16}}
	random := rand.New(rand.NewPCG(5, 6))
	for i := 0; len(all) < n; i++ {
		s := schemes[i%len(schemes)]
		text := s.begins
		for len(text) < s.length-1 {
			text += fmt.Sprint(random.IntN(10))
		}
		all = append(all, WithCheck(text))
	}
	return all
}

// WithCheck returns digits with their Luhn check digit.
func WithCheck(digits string) string {
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return digits + fmt.Sprint((10-sum%10)%10)
}
