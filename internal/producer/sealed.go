package producer

import (
	"encoding/base64"
	"errors"
	"fmt"

	"spillway/internal/job"
)

var (
	errNoKeys     = errors.New("its payload is sealed, and there is no key here to open it")
	errSealedText = errors.New("sealed must be the text that dlq export wrote")
	errTwoSources = errors.New("a line has a payload or a sealed one, not both")
)

// unseal opens a payload sealed by dlq export. It is called after the whole line is read, because the payload
// is bound to one job of one gateway.
func (r *Reader) unseal(j *job.Job) error {
	value := r.sealed
	r.sealed = nil
	switch {
	case r.paid:
		return errTwoSources
	case r.opt.Open == nil:
		return errNoKeys
	case value[0] != '"':
		return errSealedText
	}
	stored, err := base64.StdEncoding.DecodeString(unquote(value))
	if err != nil || len(stored) == 0 {
		return errSealedText
	}
	plain, err := r.opt.Open(j.Gateway, j.ID, stored)
	if err != nil {
		return fmt.Errorf("sealed: %w", err)
	}
	if err := checkText(plain); err != nil {
		return fmt.Errorf("sealed: %w", err)
	}
	if err := r.json.object(plain); err != nil {
		return fmt.Errorf("sealed: %w", err)
	}
	j.Payload = r.compact(plain)
	return nil
}
