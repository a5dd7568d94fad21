package producer

import (
	"fmt"
	"strings"
)

// Once reports a key that stands twice in one object of a JSON text, which is one object. The keys of the object
// itself are compared without regard to case, as encoding/json reads them.
func Once(text []byte) error {
	var p parser
	if err := p.object(text); err != nil {
		return err
	}
	seen := make(map[string]string, len(p.members))
	for _, m := range p.members {
		name := strings.ToLower(string(m.key))
		if other, twice := seen[name]; twice {
			return fmt.Errorf("the keys %s and %s of one object mean the same", show([]byte(other)), show(m.key))
		}
		seen[name] = string(m.key)
	}
	return nil
}
