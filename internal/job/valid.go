package job

import (
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// MaxIDLength is the longest job id, in bytes.
const MaxIDLength = 200

// MaxLine is the longest line of a billing file and the largest job that a producer may submit, in bytes.
const MaxLine = 1 << 20

var gatewayName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// CheckID returns why id can't name a job, or nil. Ids are sent in a header: HTTP trims its ends and allows
// only visible ASCII. A trailing space would give two jobs the same idempotency key.
func CheckID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("the id is empty: give each job an id of 1 to %d visible ASCII characters", MaxIDLength)
	case len(id) > MaxIDLength:
		return fmt.Errorf("the id is %d characters long: at most %d are allowed", len(id), MaxIDLength)
	}
	for i, c := range id {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("the id has the character %s at place %d: only visible ASCII without spaces is allowed", shown(id[i:]), i+1)
		}
	}
	return nil
}

// shown returns the first character of text in quotes, or its first byte if that is not valid UTF-8.
func shown(text string) string {
	c, size := utf8.DecodeRuneInString(text)
	if c == utf8.RuneError && size == 1 {
		return fmt.Sprintf(`'\x%02x'`, text[0])
	}
	return strconv.QuoteRune(c)
}

// CheckGateway returns why name can't name a gateway, or nil.
func CheckGateway(name string) error {
	if !gatewayName.MatchString(name) {
		return fmt.Errorf("%q is not a gateway's name: use lower-case letters, digits, _ and -, starting with a letter or digit", name)
	}
	return nil
}
