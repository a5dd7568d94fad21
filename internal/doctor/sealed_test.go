package doctor

import (
	"strings"
	"testing"

	"spillway/internal/config"
)

func key(id, fill string) config.EncryptionKey {
	return config.EncryptionKey{ID: id, Secret: config.Secret(strings.Repeat(fill, 32))}
}

func TestPayloadsWhoseKeyIsMissing(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.g.Encryption = &config.Encryption{Active: "old", Keys: []config.EncryptionKey{key("old", "o")}}
	w.accept("a", "b")
	w.expect("payloads", Fail, "of 2 jobs looked at, 2 can't be called: its payload is sealed with the key old, which is not known here", "give run and enqueue every key")
	w.p.Gateways[0].Encryption = &config.Encryption{Active: "new", Keys: []config.EncryptionKey{key("new", "n"), key("old", "o")}}
	for _, c := range w.examine().Checks {
		if c.Name == "payloads" {
			t.Errorf("with the key: %+v", c)
		}
	}
}
