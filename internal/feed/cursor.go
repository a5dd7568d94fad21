package feed

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Cursor is the place of an outcome in a gateway's feed: a reader that has it wants what comes after it. Later outcomes have greater cursors, also after a
// restart or a fail-over of Redis, and after a restore that an operator has confirmed. The zero Cursor is before the first.
type Cursor struct {
	Epoch int64 // it began then, in seconds
	Time  int64 // of the outcome, in µs on Redis's clock; no other one of the gateway has the same
}

// String is the cursor as readers keep it; empty for the zero Cursor.
func (c Cursor) String() string {
	if c == (Cursor{}) {
		return ""
	}
	return strconv.FormatInt(c.Epoch, 10) + "-" + strconv.FormatInt(c.Time, 10)
}

// Compare is negative if c is before o, and positive if it is behind it.
func (c Cursor) Compare(o Cursor) int {
	return cmp.Or(cmp.Compare(c.Epoch, o.Epoch), cmp.Compare(c.Time, o.Time))
}

var cursorText = regexp.MustCompile(`^\d{1,15}-\d{1,16}$`)

// ParseCursor reads what String has written. An empty text is the zero Cursor.
func ParseCursor(text string) (c Cursor, err error) {
	if text == "" {
		return c, nil
	}
	if !cursorText.MatchString(text) {
		return c, fmt.Errorf("%.60q is not a cursor: take it as it stands in a line of outcomes, or leave it out for all there are", text)
	}
	epoch, time, _ := strings.Cut(text, "-")
	c.Epoch, _ = strconv.ParseInt(epoch, 10, 64) // the pattern bounds them
	c.Time, _ = strconv.ParseInt(time, 10, 64)
	return c, nil
}
