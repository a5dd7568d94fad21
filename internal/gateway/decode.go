package gateway

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"

	"spillway/internal/job"
)

// decode undoes the coding of an answer's body, although none was requested.
func (c *Client) decode(res job.Result, coding string) job.Result {
	switch strings.ToLower(coding) {
	case "", "identity":
	case "gzip", "x-gzip":
		return c.unzip(res)
	default:
		if res.Err == nil && len(res.Body) > 0 {
			res.Err = errors.New("the answer's Content-Encoding is neither identity nor gzip, and identity was asked for")
		}
	}
	return res
}

// unzip decompresses an answer that was compressed although identity was requested.
func (c *Client) unzip(res job.Result) job.Result {
	z, err := gzip.NewReader(bytes.NewReader(res.Body))
	if err != nil {
		if res.Err == nil && len(res.Body) > 0 {
			res.Err = errors.New("the answer says that it is gzip and is not")
		}
		return res
	}
	body, err := io.ReadAll(io.LimitReader(z, c.most+1))
	switch {
	case int64(len(body)) > c.most:
		body, res.Err = body[:c.most], c.tooLong()
	case err != nil && res.Err == nil:
		res.Err = errors.New("the answer's gzip is cut off or damaged")
	}
	res.Body = body
	return res
}
