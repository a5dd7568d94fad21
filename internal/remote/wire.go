package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A request is a struct. A field with the tag path is part of the path. Other fields of a GET are in the query,
// named by the tag query or else by their JSON name; other fields of a POST are in the body, by their JSON name.

// field is a field of a request in the query.
type field struct {
	name  string
	value reflect.Value
}

// fields returns the fields of a request in the query or, with path, in the path.
func fields(v reflect.Value, path bool) (all []field) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			all = append(all, fields(v.Field(i), path)...)
			continue
		}
		inPath, is := f.Tag.Lookup("path")
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if q := f.Tag.Get("query"); q != "" {
			name = q
		}
		switch {
		case is && path:
			all = append(all, field{inPath, v.Field(i)})
		case !is && !path && name != "-":
			all = append(all, field{name, v.Field(i)})
		}
	}
	return all
}

// Parameters returns the names of a request's query parameters.
func Parameters(request any) (names []string) {
	for _, f := range fields(reflect.ValueOf(request), false) {
		names = append(names, f.name)
	}
	return names
}

// values returns the query of a request.
func values(request any) url.Values {
	q := url.Values{}
	for _, f := range fields(reflect.ValueOf(request), false) {
		switch v := f.value; {
		case v.IsZero():
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				q.Add(f.name, v.Index(i).String())
			}
		default:
			q.Set(f.name, fmt.Sprint(v.Interface()))
		}
	}
	return q
}

// Read fills a request from the path and the query or, unless body is nil, from the path and the body. Unknown
// parameters or fields are an error.
func Read(request any, path func(name string) string, query url.Values, body []byte) error {
	v := reflect.ValueOf(request).Elem()
	for _, f := range fields(v, true) {
		f.value.SetString(path(f.name))
	}
	if body != nil {
		for name := range query {
			return usage("this operation is told in the body", fmt.Sprintf("there is no parameter %.40q", name))
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		err := d.Decode(request)
		if _, behind := d.Token(); err != nil || behind != io.EOF {
			return usage("send a JSON object with "+strings.Join(bodyNames(v), ", "), "the body is not what this operation takes"+because(err))
		}
		return nil
	}
	known := fields(v, false)
	for name, given := range query {
		i := slices.IndexFunc(known, func(f field) bool { return f.name == name })
		if i < 0 {
			return usage("use "+strings.Join(Parameters(v.Interface()), ", "), fmt.Sprintf("there is no parameter %.40q", name))
		}
		if err := set(known[i], given); err != nil {
			return err
		}
	}
	return nil
}

// because returns encoding/json's error about a body with names of fields and types, but without values.
func because(err error) string {
	if e, is := err.(*json.UnmarshalTypeError); is {
		return fmt.Sprintf(": %s is %s and should be %s", e.Field, e.Value, e.Type)
	}
	if err != nil && strings.HasPrefix(err.Error(), "json: unknown field") {
		return ": " + strings.TrimPrefix(err.Error(), "json: ")
	}
	return ""
}

func bodyNames(v reflect.Value) (names []string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			names = append(names, bodyNames(v.Field(i))...)
		case name != "-" && name != "":
			names = append(names, name)
		}
	}
	return names
}

func set(f field, given []string) error {
	if f.value.Kind() != reflect.Slice && len(given) > 1 {
		return usage("give it once", f.name+" is there twice")
	}
	if kind := f.value.Kind(); given[0] == "" && (kind == reflect.Bool || kind == reflect.Int) {
		return nil // the same as missing
	}
	var err error
	switch f.value.Kind() {
	case reflect.Slice:
		all := reflect.MakeSlice(f.value.Type(), len(given), len(given))
		for i, text := range given {
			all.Index(i).SetString(text)
		}
		f.value.Set(all)
	case reflect.Bool:
		var b bool
		if b, err = strconv.ParseBool(given[0]); err != nil {
			return usage("", f.name+" is neither true nor false")
		}
		f.value.SetBool(b)
	case reflect.Int:
		var n int
		if n, err = strconv.Atoi(given[0]); err != nil || n < 1 {
			return usage("leave it out for the usual one", f.name+" is not a whole number from 1 up")
		}
		f.value.SetInt(int64(n))
	default:
		f.value.SetString(given[0])
	}
	return nil
}

// decode parses JSON, and leaves numbers of unknown type as written.
func decode(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(to)
}

// Encode writes JSON on one line. It does not escape <, > and &, so that payloads stay unchanged.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
