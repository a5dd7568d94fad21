package producer

import (
	"cmp"
	"fmt"
	"strings"

	"spillway/internal/job"
)

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

// route returns the route of a job. A line that replaces a job's payload must name the job's route or none.
func (r *Reader) route(j job.Job) (string, error) {
	switch {
	case j.Route == "" && r.opt.Shown:
		return "", nil
	case j.Route == "":
		return r.gate.route, nil
	case r.opt.RouteOf == nil:
		return j.Route, nil
	}
	return r.opt.RouteOf(j.Gateway, j.Route)
}
