package seal

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// The vectors of c2sp.org/XAES-256-GCM.
func TestTheCipherIsXAES(t *testing.T) {
	t.Parallel()
	nonce, plain := []byte("ABCDEFGHIJKLMNOPQRSTUVWX"), []byte("XAES-256-GCM")
	for _, v := range []struct {
		key         byte
		bound, want string
	}{
		{1, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"},
		{3, "c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"},
	} {
		x := newXAES([KeyBytes]byte(bytes.Repeat([]byte{v.key}, KeyBytes)))
		gcm, rest := x.message(nonce)
		sealed := gcm.Seal(nil, rest, plain, []byte(v.bound))
		if got := hex.EncodeToString(sealed); got != v.want {
			t.Errorf("key %d: %s, want %s", v.key, got, v.want)
		}
		if back, err := x.open(nonce, sealed, []byte(v.bound)); err != nil || !bytes.Equal(back, plain) {
			t.Errorf("key %d: opened as %q, %v", v.key, back, err)
		}
	}
}

func secret(n byte) []byte { return bytes.Repeat([]byte{n}, KeyBytes) }

var old, now = Key{"k2025", secret(1)}, Key{"k2026", secret(2)}

func TestWhatIsSealedOpensForItsJobAlone(t *testing.T) {
	t.Parallel()
	box := New("stripe", "k2026", []Key{old, now})
	for _, payload := range []string{`{}`, `{"amount":4900}`, strings.Repeat("x", 1<<20)} {
		sealed, err := box.Seal("inv-1", []byte(payload))
		if err != nil || !Sealed(sealed) || bytes.Contains(sealed, []byte(payload)) {
			t.Fatalf("sealed as %.80q, %v", sealed, err)
		}
		if back, err := box.Open("inv-1", sealed); err != nil || string(back) != payload {
			t.Errorf("opened as %.80q, %v", back, err)
		}
		if _, err := box.Open("inv-2", sealed); !errors.Is(err, ErrChanged) {
			t.Errorf("opened as another job's: %v", err)
		}
		if _, err := New("adyen", "k2026", []Key{now}).Open("inv-1", sealed); !errors.Is(err, ErrChanged) {
			t.Errorf("opened as another gateway's: %v", err)
		}
		again, _ := box.Seal("inv-1", []byte(payload))
		if bytes.Equal(again, sealed) {
			t.Error("sealed twice, it looks the same: the nonce is used again")
		}
	}
}

// Nonces must never repeat: not among many sealers at once, and not after a restart.
func TestNoNonceIsUsedTwice(t *testing.T) {
	t.Parallel()
	box := New("stripe", "k2026", []Key{now})
	at := len(mark) + 1 + len("k2026") + checkBytes
	var mu sync.Mutex
	seen, halves := map[string]bool{}, map[string]bool{}
	var sealing sync.WaitGroup
	for range 4 {
		sealing.Go(func() {
			for range 2500 {
				sealed, _ := box.Seal("inv-1", nil)
				nonce := string(sealed[at:][:nonceBytes])
				mu.Lock()
				if seen[nonce] {
					t.Errorf("the nonce %x came again", nonce)
				}
				seen[nonce], halves[nonce[:12]] = true, true
				mu.Unlock()
			}
		})
	}
	sealing.Wait()
	if len(halves) < 10000/runLength {
		t.Errorf("%d keys of messages for 10000", len(halves))
	}
}

// A sealed payload with any byte changed does not open, and is not taken for something else.
func TestNoChangedByteGoesUnseen(t *testing.T) {
	t.Parallel()
	box := New("stripe", "k2026", []Key{now})
	sealed, _ := box.Seal("inv-1", []byte(`{"amount":4900}`))
	for i := len(family); i < len(sealed); i++ {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		_, err := box.Open("inv-1", changed)
		if _, noKey := errors.AsType[*KeyError](err); !noKey && !errors.Is(err, ErrChanged) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := box.Open("inv-1", sealed[:i]); err == nil {
			t.Errorf("cut off at %d it opens", i)
		}
	}
}

func TestAKeyThatIsNotAtHandIsNoDamage(t *testing.T) {
	t.Parallel()
	sealed, _ := New("stripe", "k2025", []Key{old}).Seal("inv-1", []byte(`{}`))
	for name, box := range map[string]*Box{
		"no keys":      nil,
		"another key":  New("stripe", "k2026", []Key{now}),
		"not given":    New("stripe", "k2025", []Key{{ID: "k2025"}}),
		"wrong secret": New("stripe", "k2025", []Key{{ID: "k2025", Secret: secret(9)}}),
	} {
		_, err := box.Open("inv-1", sealed)
		e, ok := errors.AsType[*KeyError](err)
		if !ok || e.ID != "k2025" || e.Wrong != (name == "wrong secret") {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(fmt.Sprint(err), string(secret(1))) {
			t.Errorf("%s: the key is in the error", name)
		}
	}
	later := bytes.Clone(sealed)
	later[len(mark)-1]++
	if _, err := New("stripe", "k2025", []Key{old}).Open("inv-1", later); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("a later form: %v", err)
	}
}

func TestSealingFailsWithoutTheActiveKey(t *testing.T) {
	t.Parallel()
	if _, err := New("stripe", "k2026", []Key{old, {ID: "k2026"}}).Seal("inv-1", []byte(`{}`)); err == nil {
		t.Error("it was stored in plain, or under another key")
	}
}

func TestWithoutAnActiveKeyPayloadsGoInAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, box := range []*Box{nil, New("stripe", "", []Key{old})} {
		got, err := box.Seal("inv-1", []byte(`{"a":1}`))
		if err != nil || string(got) != `{"a":1}` || box.Digest("inv-1", "abc") != "abc" || box.Seals() {
			t.Errorf("stored as %q, %v, digest %q", got, err, box.Digest("inv-1", "abc"))
		}
		if back, err := box.Open("inv-1", got); err != nil || string(back) != `{"a":1}` {
			t.Errorf("opened as %q, %v", back, err)
		}
	}
}

// A job that was accepted with an old key, or before there were keys, is still known after the key has changed.
func TestDigestsAreKnownAgainUnderEveryKey(t *testing.T) {
	t.Parallel()
	const plain = "0123456789abcdef"
	before := New("stripe", "k2025", []Key{old}).Digest("inv-1", plain)
	box := New("stripe", "k2026", []Key{now, old})
	after := box.Digest("inv-1", plain)
	for _, stored := range []string{plain, before, after} {
		if !box.SameDigest("inv-1", plain, stored) {
			t.Errorf("%s is not known again", stored)
		}
		if box.SameDigest("inv-1", "another", stored) {
			t.Errorf("%s is taken for another payload's", stored)
		}
	}
	if before == plain || after == before || box.Digest("inv-2", plain) == after || New("adyen", "k2026", []Key{now}).Digest("inv-1", plain) == after {
		t.Error("a digest says more than whether this job has this payload")
	}
	if New("stripe", "k2026", []Key{now}).SameDigest("inv-1", plain, before) {
		t.Error("it is known without its key")
	}
}

func FuzzOpen(f *testing.F) {
	box := New("stripe", "k2026", []Key{now})
	sealed, _ := box.Seal("inv-1", []byte(`{}`))
	f.Add(sealed)
	f.Add([]byte(mark))
	f.Add([]byte(mark + "\xff"))
	f.Fuzz(func(t *testing.T, stored []byte) {
		if got, err := box.Open("inv-1", stored); err == nil && Sealed(stored) && string(got) != "{}" {
			t.Errorf("%q opens as %q", stored, got)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	box := New("stripe", "k2026", []Key{old, now})
	for _, size := range []int{200, 2000} {
		payload := make([]byte, size)
		rand.Read(payload)
		b.Run(fmt.Sprintf("seal %d bytes", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = box.Seal("inv-2026-11-000001", payload)
				_ = box.Digest("inv-2026-11-000001", "0123456789abcdef")
			}
		})
		sealed, _ := box.Seal("inv-2026-11-000001", payload)
		b.Run(fmt.Sprintf("open %d bytes", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = box.Open("inv-2026-11-000001", sealed)
			}
		})
	}
}
