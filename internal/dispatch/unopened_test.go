package dispatch

import (
	"bytes"
	"testing"

	"spillway/internal/config"
	"spillway/internal/seal"
)

// encrypting returns the configuration of keys, of which the first one seals.
func encrypting(ids ...string) *config.Encryption {
	e := &config.Encryption{Active: ids[0]}
	for _, id := range ids {
		e.Keys = append(e.Keys, config.EncryptionKey{ID: id, Secret: config.Secret(bytes.Repeat([]byte(id[:1]), seal.KeyBytes))})
	}
	return e
}

// Jobs whose payload's key is missing from the file are pulled once. When the key is back, all of them are called.
func TestJobsWithoutTheirKeyTakeNoSlots(t *testing.T) {
	t.Parallel()
	takeNoSlots(t, "", "", func(whole config.Gateway) (config.Gateway, config.Gateway) {
		lacking := whole
		whole.Encryption, lacking.Encryption = encrypting("old", "new"), encrypting("new")
		return whole, lacking
	})
}
