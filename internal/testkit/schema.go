package testkit

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// schema is the part of a JSON schema that is read.
type schema struct {
	Ref        string             `json:"$ref"`
	Type       any                `json:"type"` // a text, or several of them
	OneOf      []*schema          `json:"oneOf"`
	Required   []string           `json:"required"`
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	Values     *schema            `json:"additionalProperties"`
	Enum       []any              `json:"enum"`
}

// Described checks that the schema of this name in an OpenAPI document describes the JSON that Go writes for a type: exactly its fields,
// each with its type, and as required those that are always there.
func Described(t testing.TB, document []byte, name string, of any) {
	t.Helper()
	for _, fault := range schemaOf(t, document, name).faults(name, reflect.TypeOf(of), name) {
		t.Error(fault)
	}
}

// Listed checks that the schema of this name lists exactly these values for one of its properties.
func Listed[T ~string](t testing.TB, document []byte, name, property string, values []T) {
	t.Helper()
	p := schemaOf(t, document, name).Properties[property]
	if p == nil {
		t.Fatalf("the schema %s has no property %s", name, property)
	}
	if !slices.EqualFunc(p.Enum, values, func(a any, b T) bool { return a == string(b) }) {
		t.Errorf("%s.%s is described as one of %v, and is one of %v", name, property, p.Enum, values)
	}
}

func schemaOf(t testing.TB, document []byte, name string) (s *schema) {
	t.Helper()
	var doc struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	err := json.Unmarshal(document, &doc)
	if err == nil {
		err = json.Unmarshal(doc.Components.Schemas[name], &s)
	}
	if err != nil {
		t.Fatalf("the schema %s: %v", name, err)
	}
	return s
}

// faults returns how a schema differs from a Go type. self is the name of the whole schema, to which it may refer.
func (s *schema) faults(at string, of reflect.Type, self string) (all []string) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if shown, has := shownAs(of); has {
		of = shown
	}
	if s != nil && of.Kind() == reflect.Interface {
		return nil // anything
	}
	if s == nil {
		return []string{at + " is not described"}
	}
	if strings.HasSuffix(s.Ref, "/"+self) {
		return nil
	}
	want := jsonType(of)
	if !slices.Contains(s.types(), want) {
		return []string{fmt.Sprintf("%s is described as %v, and is %s", at, s.types(), want)}
	}
	switch {
	case want == "array":
		return s.Items.faults(at+"[]", of.Elem(), self)
	case of.Kind() == reflect.Map:
		return s.Values.faults(at+".*", of.Elem(), self)
	case of.Kind() == reflect.Struct:
		return s.fieldFaults(at, of, self)
	}
	return nil
}

// shownAs returns the type as which a type with its own MarshalJSON is written: that of its method Shown.
func shownAs(of reflect.Type) (reflect.Type, bool) {
	m, has := reflect.PointerTo(of).MethodByName("Shown")
	if !has || m.Type.NumIn() != 1 || m.Type.NumOut() != 1 || m.Type.Out(0) == of {
		return nil, false
	}
	return m.Type.Out(0), true
}

// hides reports whether another field of the type replaces this one in JSON: one with the same name that is less deep.
func hides(of reflect.Type, f reflect.StructField, name string) bool {
	return slices.ContainsFunc(reflect.VisibleFields(of), func(other reflect.StructField) bool {
		same, _, _ := strings.Cut(other.Tag.Get("json"), ",")
		return same == name && len(other.Index) < len(f.Index)
	})
}

func (s *schema) fieldFaults(at string, of reflect.Type, self string) (all []string) {
	left := map[string]bool{}
	for name := range s.Properties {
		left[name] = true
	}
	for _, f := range reflect.VisibleFields(of) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "-" || !f.IsExported() || hides(of, f, name) {
			continue
		}
		delete(left, name)
		here := at + "." + name
		all = append(all, s.Properties[name].faults(here, f.Type, self)...)
		if always := !strings.Contains(options, "omitempty"); always != slices.Contains(s.Required, name) {
			all = append(all, fmt.Sprintf("%s is always there: %v, and described as required: %v", here, always, !always))
		}
		if null := f.Type.Kind() == reflect.Pointer && !strings.Contains(options, "omitempty"); s.Properties[name] != nil && null != slices.Contains(s.Properties[name].types(), "null") {
			all = append(all, fmt.Sprintf("%s may be null: %v, and is described otherwise", here, null))
		}
	}
	for name := range left {
		all = append(all, at+"."+name+" is described, and there is no such field")
	}
	return all
}

func (s *schema) types() (all []string) {
	switch is := s.Type.(type) {
	case string:
		return []string{is}
	case []any:
		for _, one := range is {
			all = append(all, fmt.Sprint(one))
		}
	}
	for _, one := range s.OneOf {
		all = append(all, one.types()...)
	}
	return all
}

// jsonType returns the JSON type of a Go type.
func jsonType(of reflect.Type) string {
	switch {
	case of == reflect.TypeFor[time.Time]():
		return "string"
	case of == reflect.TypeFor[json.RawMessage]():
		return "object"
	case of == reflect.TypeFor[[]byte]():
		return "string"
	case of.PkgPath() == "math/big":
		return "integer"
	}
	switch of.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.String:
		return "string"
	case reflect.Slice:
		return "array"
	}
	return "object"
}
