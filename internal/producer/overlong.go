package producer

import (
	"fmt"
	"io"

	"spillway/internal/job"
)

var (
	errLongLine   = fmt.Errorf("the line is longer than %d bytes, the most that a job may have", job.MaxLine)
	errLongRecord = fmt.Errorf("the record is longer than %d bytes, the most that a job may have: is a quote not closed?", job.MaxLine)
)

func (e *ending) tooLong() error {
	if e.quote == quoted {
		return errLongRecord
	}
	return errLongLine
}

// rest reads the part of an overlong line that is not held in memory.
type rest struct {
	in   *lines
	end  ending
	frag []byte
	done bool
}

// Read implements io.Reader up to the end of the line.
func (r *rest) Read(p []byte) (int, error) {
	for len(r.frag) == 0 {
		if r.done {
			return 0, io.EOF
		}
		frag, err := r.in.fragment()
		if err != nil {
			r.done = err == io.EOF
			return 0, err
		}
		r.frag, r.done = frag, r.end.reached(frag)
	}
	n := copy(p, r.frag)
	r.frag = r.frag[n:]
	return n, nil
}
