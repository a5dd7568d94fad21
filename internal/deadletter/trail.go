package deadletter

import (
	"context"
	"encoding/json"
	"time"
)

// Act is one thing that a person did to dead letters.
type Act struct {
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	What   string    `json:"what"` // replay or discard
	Why    string    `json:"why,omitempty"`
	Filter string    `json:"filter"`
	Jobs   int       `json:"jobs"`
}

// Note writes an act down, for good.
func (s *Store) Note(ctx context.Context, a Act) error {
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return s.c.RPush(ctx, s.keys.Trail(), line).Err()
}
