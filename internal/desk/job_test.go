package desk

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// fill sets each field that can be reached from v.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.UnixMicro(1)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.String:
		v.SetString("1")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	}
}

// elsewhere are the fields that do not come from the record alone. placed are those with their own place in a table or on a page. All other fields are
// facts of Given or Facts.
var (
	elsewhere = " Why ETA ETAMost Settled "
	placed    = " ID Gateway State Why ETA ETAMost Batch Cost Amount Attempts Spent Replays Key Reason Status HasIt Calls PayloadDeleted "
)

func fieldsBut(names string, see func(reflect.StructField)) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Job]()) {
		if !strings.Contains(names, " "+f.Name+" ") {
			see(f)
		}
	}
}

// Each field in the view of a job is set from the record.
func TestEachFieldOfAJobIsFilledIn(t *testing.T) {
	t.Parallel()
	var r job.Record
	fill(reflect.ValueOf(&r).Elem())
	r.State, r.Unopened, r.Job.Payload, r.Sealed, r.Money = job.Done, nil, nil, nil, "490 EUR"
	g := config.Gateway{Name: "g", Amount: config.Amount{Field: "amount"}}
	g.Request.Key.Name = "Idempotency-Key"
	v := reflect.ValueOf(Found{&Gateway{Gateway: g}, r}.view())
	fieldsBut(elsewhere, func(f reflect.StructField) {
		if v.FieldByName(f.Name).IsZero() {
			t.Errorf("%s is empty, and nothing in the record is", f.Name)
		}
	})
}

// Each field in the view of a job is one of the facts, which the command and the console show.
func TestEachFieldOfAJobIsShown(t *testing.T) {
	t.Parallel()
	fieldsBut(placed, func(f reflect.StructField) {
		var v Job
		field := reflect.ValueOf(&v).Elem().FieldByName(f.Name)
		switch value := field.Addr().Interface().(type) {
		case **time.Time:
			*value = new(time.Time)
		case **deadletter.Settled:
			*value = &deadletter.Settled{}
		default:
			fill(field)
		}
		if len(v.Given())+len(v.Facts()) != 1 {
			t.Errorf("%s is in none of the facts: %v, %v", f.Name, v.Given(), v.Facts())
		}
	})
}
