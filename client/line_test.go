package client

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// endless is a line of 96 MiB of whatever is in the buffer. It counts what was read of it.
type endless struct{ read int }

func (e *endless) Read(to []byte) (int, error) {
	if e.read >= 96<<20 {
		return 0, io.EOF
	}
	e.read += len(to)
	return len(to), nil
}

func (e *endless) Close() error { return nil }

// RoundTrip makes it the body of any answer.
func (e *endless) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-ndjson"}}, Body: e, Request: r}, nil
}

// What answers instead of a dispatcher may send a line without an end. It is read up to the longest answer.
func TestALineWithoutAnEndIsNotRead(t *testing.T) {
	t.Parallel()
	for what, ask := range map[string]func(*endless) *Error{
		"a stream": func(e *endless) *Error {
			c, err := New("http://127.0.0.1:1", HTTPClient(&http.Client{Transport: e}))
			if err != nil {
				t.Fatal(err)
			}
			return c.eachLine(t.Context(), call{method: http.MethodGet, path: "/v1/x"}, func([]byte) error { return nil })
		},
		"jobs": func(e *endless) *Error {
			one := &enqueuing{results: []Result{{ID: "a"}}, lines: [][]byte{[]byte("{}")}, left: []int{0}}
			return one.read(e, []int{0}, "g")
		},
	} {
		var e endless
		if err := ask(&e); err == nil || !errors.Is(err, errLong) || e.read > answerMost+1<<20 {
			t.Errorf("%s: %v after %d bytes", what, err, e.read)
		}
	}
	line := strings.Repeat("b", 5<<20) + "\n"
	c, err := New("http://127.0.0.1:1", HTTPClient(&http.Client{Transport: of(line + line)}))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := c.eachLine(t.Context(), call{method: http.MethodGet, path: "/v1/x"}, func(text []byte) error {
		if string(text) == line {
			n++
		}
		return nil
	}); err != nil || n != 2 {
		t.Errorf("%d long lines: %v", n, err)
	}
}

// of answers any request with this text.
type of string

func (o of) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-ndjson"}}, Body: io.NopCloser(strings.NewReader(string(o))), Request: r}, nil
}
