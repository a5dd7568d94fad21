package producer

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"spillway/internal/job"
)

// plainJob reads a line that is the payload itself.
func (r *Reader) plainJob(raw []byte) (job.Job, error) {
	if err := r.json.object(raw); err != nil {
		return job.Job{}, err
	}
	j := r.flagJob()
	for _, m := range r.json.members {
		if string(m.key) == r.opt.IDField {
			var err error
			if j.ID, err = idOf(m.value); err != nil {
				return job.Job{}, err
			}
		}
	}
	if j.ID == "" && strings.Contains(r.opt.IDField, ".") {
		if value := r.json.head(r.opt.IDField).value(new(parser)); value != nil {
			var err error
			if j.ID, err = idOf(value); err != nil {
				return job.Job{}, err
			}
		}
	}
	if j.ID == "" {
		return job.Job{}, fmt.Errorf("no id: the field %q is missing, null or empty", r.opt.IDField)
	}
	r.id = j.ID
	var err error
	if r.opt.RouteField != "" {
		if j.Route, err = r.routeIn(r.opt.RouteField, j.Route); err != nil {
			return job.Job{}, err
		}
	}
	if r.gateway.mapper == nil {
		j.Payload = r.compact(bytes.TrimSpace(raw))
		return r.checked(j)
	}
	if j.Payload, err = r.gateway.mapper.object(&r.json, r.opt.IDField); err != nil {
		return job.Job{}, err
	}
	return r.checked(j)
}

// routeIn returns the route that a field of the line names, or usual.
func (r *Reader) routeIn(field, usual string) (string, error) {
	var value []byte
	for _, m := range r.json.members {
		if string(m.key) == field {
			value = m.value
		}
	}
	if value == nil && strings.Contains(field, ".") {
		value = r.json.head(field).value(new(parser))
	}
	switch {
	case value == nil || string(value) == "null":
		return usual, nil
	case value[0] != '"':
		return "", fmt.Errorf("the field %q must be a text in quotes, the name of a route", field)
	}
	return cmp.Or(unquote(value), usual), nil
}
