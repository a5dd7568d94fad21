package feed

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Cursor is the position of an outcome in a gateway's feed. A reader passes it to get what comes after it. Later
// outcomes have greater cursors, even after a restart or failover of Redis, and after a confirmed restore. The zero
// Cursor precedes the first outcome.
type Cursor struct {
	Epoch int64 // start of the epoch, in seconds
	Time  int64 // of the outcome, in µs on Redis's clock; unique within the gateway
}

// String returns the cursor as readers store it; empty for the zero Cursor.
func (c Cursor) String() string {
	if c == (Cursor{}) {
		return ""
	}
	return strconv.FormatInt(c.Epoch, 10) + "-" + strconv.FormatInt(c.Time, 10)
}

// Compare is negative if c precedes o, and positive if it follows o.
func (c Cursor) Compare(o Cursor) int {
	return cmp.Or(cmp.Compare(c.Epoch, o.Epoch), cmp.Compare(c.Time, o.Time))
}

var cursorText = regexp.MustCompile(`^\d{1,15}-\d{1,16}$`)

// ParseCursor parses the result of String. An empty text is the zero Cursor.
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
