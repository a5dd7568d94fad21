package job

import "strings"

// DidYouMean is "; did you mean WORD?" with the word that text was most likely meant to be, each behind a prefix such as "--". It is empty where there
// is none.
func DidYouMean(text, prefix string, words []string) string {
	near, ok := Nearest(text, words)
	if !ok {
		return ""
	}
	return "; did you mean " + prefix + near + "?"
}

// Nearest returns the word that text was most likely meant to be: one that is a few typing mistakes away.
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

// maxKey bounds the texts for which a likeness is worth its search.
const maxKey = 20

// distance is the number of letters to insert, delete, replace or swap with their neighbour to make b of a.
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
