package producer

import (
	"encoding/json"
	"errors"
	"fmt"

	"spillway/internal/job"
)

// Lane returns the lane of a job that names this one, or why it can't have it. An empty name means that the job
// names none. A nil key means that the gateway has no lanes.
func Lane(gateway string, key *job.LaneKey, named string, payload json.RawMessage) (string, error) {
	if key == nil {
		if named != "" {
			return "", fmt.Errorf("lane %q: gateway %s has no lanes: leave the lane out, or write lanes in the configuration", named, gateway)
		}
		return "", nil
	}
	lane := named
	if key.Field != "" {
		var err error
		if lane, err = laneIn(payload, key.Field); err != nil {
			return "", err
		}
		if named != "" && named != lane {
			return "", fmt.Errorf("lane %q: the lanes of gateway %s are what the payload has as %s, which is not that: leave the lane out", named, gateway, key.Field)
		}
	}
	switch {
	case lane == "" && key.Required && key.Field == "":
		return "", fmt.Errorf("no lane: each call of gateway %s has its lane in a header, so say it in the line, as \"lane\"", gateway)
	case lane == "" && key.Required:
		return "", fmt.Errorf("no lane: each call of gateway %s has its lane in a header, and the payload's field %s is missing, null or empty", gateway, key.Field)
	case lane == "":
		return "", nil
	}
	return lane, job.CheckLane(lane)
}

var errLaneKind = errors.New("must be a text in quotes or a whole number")

// laneIn returns the lane in a payload. It is empty if the field is missing or null.
func laneIn(payload json.RawMessage, field string) (string, error) {
	p, _ := parsers.Get().(*parser)
	defer parsers.Put(p)
	if len(payload) == 0 || p.object(payload) != nil {
		return "", nil
	}
	value := p.head(field).value(p)
	if value == nil {
		return "", nil
	}
	lane, err := idOf(value)
	if err != nil {
		return "", fmt.Errorf("the field %s is the lane, and %w", field, errLaneKind)
	}
	return lane, nil
}

// lane returns the lane of a job.
func (r *Reader) lane(j job.Job) (string, error) {
	if r.opt.Lanes == nil {
		return j.Lane, nil
	}
	return Lane(j.Gateway, r.gateway.lanes, j.Lane, j.Payload)
}
