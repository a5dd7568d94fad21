package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"sync/atomic"
)

// nonceBytes is the length of a nonce of XAES-256-GCM: long enough for any number of random ones.
const nonceBytes = 24

// xaes is XAES-256-GCM (c2sp.org/XAES-256-GCM): AES-256-GCM with a separate key for each first half of a nonce,
// derived from that half and the long key. It needs only AES and GCM.
type xaes struct {
	block cipher.Block
	k1    [aes.BlockSize]byte
	now   atomic.Pointer[run]
}

func newXAES(key [KeyBytes]byte) *xaes {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // unreachable: the key has 32 bytes
	}
	x := &xaes{block: block}
	block.Encrypt(x.k1[:], x.k1[:])
	msb := byte(0)
	for i := len(x.k1) - 1; i >= 0; i-- {
		x.k1[i], msb = x.k1[i]<<1|msb, x.k1[i]>>7
	}
	x.k1[len(x.k1)-1] ^= msb * 0x87
	return x
}

// message returns the AES-256-GCM for a nonce, and the half of the nonce to use with it.
func (x *xaes) message(nonce []byte) (cipher.AEAD, []byte) {
	var key [2 * aes.BlockSize]byte
	for half := range 2 {
		k := key[half*aes.BlockSize:][:aes.BlockSize]
		copy(k, []byte{0, byte(half + 1), 'X', 0})
		copy(k[4:], nonce[:12])
		subtle.XORBytes(k, k, x.k1[:])
		x.block.Encrypt(k, k)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // unreachable: the key has 32 bytes
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // unreachable: AES has the block size that GCM wants
	}
	return gcm, nonce[12:]
}

func (x *xaes) open(nonce, sealed, bound []byte) ([]byte, error) {
	gcm, rest := x.message(nonce)
	return gcm.Open(nil, rest, sealed, bound)
}

// runLength is how many messages share the first half of their nonces, and the key derived from it, because
// deriving takes longer than sealing a payload. Their second halves are random, and even 2³² of those would be
// safe with one key.
const runLength = 4096

// run is such a group of messages.
type run struct {
	half [12]byte
	gcm  cipher.AEAD
	used atomic.Int64
}

// next returns the run of the next message.
func (x *xaes) next() *run {
	if r := x.now.Load(); r != nil && r.used.Add(1) < runLength {
		return r
	}
	r := &run{}
	rand.Read(r.half[:])
	r.gcm, _ = x.message(append(r.half[:], make([]byte, 12)...))
	x.now.Store(r)
	return r
}

// seal appends a random nonce and the ciphertext to dst.
func (x *xaes) seal(dst, plain, bound []byte) []byte {
	r := x.next()
	dst = append(dst, r.half[:]...)
	dst = dst[:len(dst)+12]
	rest := dst[len(dst)-12:]
	rand.Read(rest)
	return r.gcm.Seal(dst, rest, plain, bound)
}
