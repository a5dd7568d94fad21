package cli

import (
	"bytes"
	"encoding/csv"
	"reflect"
	"testing"
	"time"
)

func TestCSVIsReadBackAndStartsNoFormula(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c, err := NewCSV(&out, "id", "text", "amount", "at", "none")
	if err == nil {
		err = c.Row(Uncut("=1+1"), `a "b", c`, Whole("-5"), time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC), nil)
	}
	if err == nil {
		err = c.Row(Uncut("\t@x"), "two\r\nlines", 7, time.Time{}, " +1")
	}
	if err == nil {
		err = c.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := csv.NewReader(&out).ReadAll()
	want := [][]string{{"id", "text", "amount", "at", "none"}, {"'=1+1", `a "b", c`, "-5", "2026-11-30T18:00:00Z", ""}, {"' @x", "two  lines", "7", "", "' +1"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: %q", err, got)
	}
}
