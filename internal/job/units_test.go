package job

import (
	"encoding/json"
	"math/big"
	"reflect"
	"testing"
)

func TestUnitsAreExactForPrograms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		minor    int64
		currency string
		want     string
	}{{963586, "EUR", "9635.86"}, {-5, "EUR", "-0.05"}, {1050, "JPY", "1050"}, {1234567890, "KWD", "1234567.890"}, {0, "EUR", "0.00"}, {1, "", ""}, {1, "XXY", ""}} {
		if got := (Money{big.NewInt(c.minor), c.currency}).Units(); got != c.want {
			t.Errorf("%d %s: %q, want %q", c.minor, c.currency, got, c.want)
		}
	}
}

func TestFieldsOfAPayload(t *testing.T) {
	t.Parallel()
	got := FieldsOf([]byte(`{"a":{"b":"x"},"n":12345678901234567890.10,"z":null,"l":[1]}`), []string{"a.b", "n", "z", "none", "a.b.c", "l"})
	want := []any{"x", json.Number("12345678901234567890.10"), nil, nil, nil, []any{json.Number("1")}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%#v", got)
	}
	if got := FieldsOf([]byte(`[1]`), []string{"a"}); !reflect.DeepEqual(got, []any{nil}) {
		t.Errorf("no object: %#v", got)
	}
}
