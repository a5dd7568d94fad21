package job

import "strings"

// DidYouMean returns "; did you mean WORD?" with the word of words closest to text. Text and word both carry a
// prefix such as "--". It is empty if no word is close.
func DidYouMean(text, prefix string, words []string) string {
	near, ok := Nearest(text, words)
	if !ok {
		return ""
	}
	return "; did you mean " + prefix + near + "?"
}

// Nearest returns the word closest to text, if it is within a few typing mistakes.
func Nearest(text string, words []string) (string, bool) {
	best, found := "", false
	least := 1 + len(text)/3
	for _, w := range words {
		if d := distance(strings.ToLower(text), w); d <= least && len(text) <= 4*maxKey {
			best, found, least = w, true, d-1
		}
	}
	return best, found
}

// maxKey bounds the length of texts that are compared, since the comparison is slow for long ones.
const maxKey = 20

// distance returns the number of letters to insert, delete, replace or swap with their neighbour to turn a into
// b.
func distance(a, b string) int {
	if len(a) > 4*maxKey {
		return len(a)
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		above := row
		row = make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := above[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, above[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before = above
	}
	return row[len(b)]
}
