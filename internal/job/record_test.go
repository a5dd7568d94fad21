package job

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
)

// Listings read RecordFields: what ParseRecord reads and they do not would be empty there.
func TestRecordFieldsAreWhatParseRecordReads(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("record.go")
	if err != nil {
		t.Fatal(err)
	}
	var read []string
	for _, m := range regexp.MustCompile(`(?:number|at)\("(\w+)"\)|\bh\["(\w+)"\]|field (?::=|=) "(\w+)"`).FindAllSubmatch(source, -1) {
		read = append(read, string(m[1])+string(m[2])+string(m[3]))
	}
	for _, f := range read {
		if !slices.Contains(append(RecordFields(), PayloadFields()...), f) {
			t.Errorf("ParseRecord reads %q, which is not among RecordFields", f)
		}
	}
	empty := ParseRecord("g", "j", map[string]string{})
	for _, f := range RecordFields() {
		values := []string{"7", "1", "1 2 3 done\n", "done 7 1"} // of whatever kind the field is, one of them changes something
		changed := func(v string) bool { return !reflect.DeepEqual(ParseRecord("g", "j", map[string]string{f: v}), empty) }
		if !slices.ContainsFunc(values, changed) {
			t.Errorf("RecordFields has %q, which ParseRecord does not read", f)
		}
	}
}
