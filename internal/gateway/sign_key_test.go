package gateway

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/job"
)

// signingKeys are one key for each algorithm, made once.
var signingKeys = sync.OnceValues(func() (map[string]crypto.Signer, error) {
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	return map[string]crypto.Signer{"rs256": long, "ps256": long, "es256": curve, "es256-raw": curve, "ed25519": ed}, err
})

func keyFor(t *testing.T, algorithm string) crypto.Signer {
	t.Helper()
	all, err := signingKeys()
	if err != nil {
		t.Fatal(err)
	}
	return all[algorithm]
}

// verified says what openssl, where it is installed, and the standard library make of a signature: the same.
func verified(t *testing.T, algorithm string, key crypto.PublicKey, content, signature []byte) bool {
	t.Helper()
	if algorithm == "es256-raw" {
		if len(signature) != 64 {
			return false
		}
		var err error
		both := struct{ R, S *big.Int }{new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])}
		if signature, err = asn1.Marshal(both); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256(content)
	var good bool
	switch k := key.(type) {
	case *rsa.PublicKey:
		if algorithm == "rs256" {
			good = rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], signature) == nil
		} else {
			good = rsa.VerifyPSS(k, crypto.SHA256, sum[:], signature, &rsa.PSSOptions{SaltLength: 32}) == nil
		}
	case *ecdsa.PublicKey:
		good = ecdsa.VerifyASN1(k, sum[:], signature)
	case ed25519.PublicKey:
		good = ed25519.Verify(k, content, signature)
	}
	if tool, err := exec.LookPath("openssl"); err == nil {
		if said := openssl(t, tool, algorithm, key, content, signature); said != good {
			t.Errorf("%s: openssl says %v, the standard library %v", algorithm, said, good)
		}
	}
	return good
}

func openssl(t *testing.T, tool, algorithm string, key crypto.PublicKey, content, signature []byte) bool {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	public := file("public.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	args := []string{"dgst", "-sha256", "-verify", public, "-signature", file("signature", signature)}
	switch algorithm {
	case "ps256":
		args = append(args, "-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:32")
	case "ed25519":
		args = []string{"pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-sigfile", file("signature", signature), "-in"}
	}
	out, err := exec.Command(tool, append(args, file("content", content))...).CombinedOutput()
	return err == nil && (strings.Contains(string(out), "Verified OK") || strings.Contains(string(out), "Verified Successfully"))
}

// signedCall is what a server saw of one.
type signedCall struct {
	body   []byte
	header http.Header
}

func callSigned(t *testing.T, s Sign) signedCall {
	t.Helper()
	var got signedCall
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got.body, _ = io.ReadAll(r.Body)
		got.header = r.Header
	}))
	defer srv.Close()
	s.Header = "X-Signature"
	res := client(t, Config{URL: srv.URL + "/v1/{id}", Strip: []string{"account"}, Sign: s}).Send(context.Background(),
		job.Request{Job: job.Job{ID: "j-1", Payload: []byte(`{"account":"a", "amount" : 4900, "to":"Müller"}`)}, Key: "k-1"})
	if res.Status != http.StatusOK || len(got.body) == 0 {
		t.Fatalf("%+v", res)
	}
	return got
}

func TestSignaturesWithAPrivateKey(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"rs256", "ps256", "es256", "es256-raw", "ed25519"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			key := keyFor(t, algorithm)
			got := callSigned(t, Sign{Key: key, Algorithm: algorithm, Content: "{method} {path}\n{key}\n{body}", Encoding: "base64", Value: "sig={signature}"})
			signature, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(got.header.Get("X-Signature"), "sig="))
			content := "POST /v1/j-1\nk-1\n" + string(got.body)
			if err != nil || !verified(t, algorithm, key.Public(), []byte(content), signature) {
				t.Errorf("%v: %q is not signed by %x", err, content, signature)
			}
			if verified(t, algorithm, key.Public(), []byte(content+" "), signature) {
				t.Error("another body is signed too")
			}
			if want := `{ "amount" : 4900, "to":"Müller"}`; string(got.body) != want {
				t.Errorf("the body is %s", got.body)
			}
		})
	}
}

// The body is put back where a detached JWS has nothing (RFC 7515, appendix F), or taken as it is (RFC 7797).
func TestDetachedJWS(t *testing.T) {
	t.Parallel()
	for algorithm, name := range map[string]string{"rs256": "RS256", "ps256": "PS256", "es256": "ES256", "ed25519": "EdDSA"} {
		for _, unencoded := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				key, before := keyFor(t, algorithm), time.Now().Unix()
				got := callSigned(t, Sign{Key: key, Algorithm: algorithm, Content: "{body}", JWS: &JWS{KeyID: "k\"1", Unencoded: unencoded, Protected: map[string]any{
					"iat": "{timestamp}", "jti": "{id}:{key}:{timestamp}", "n": json.Number("7"), "aud": []any{"a", json.Number("1.50"), true}, "crit": []any{"iat"}}}})
				parts := strings.Split(got.header.Get("X-Signature"), ".")
				if len(parts) != 3 || parts[1] != "" {
					t.Fatalf("not detached: %q", parts)
				}
				header, err := base64.RawURLEncoding.DecodeString(parts[0])
				signature, err2 := base64.RawURLEncoding.DecodeString(parts[2])
				var protected map[string]any
				if err != nil || err2 != nil || json.Unmarshal(header, &protected) != nil {
					t.Fatal(err, err2, string(header))
				}
				iat, _ := protected["iat"].(float64)
				if int64(iat) < before || int64(iat) > time.Now().Unix() {
					t.Errorf("iat is %v", protected["iat"])
				}
				content := []byte(parts[0] + "." + base64.RawURLEncoding.EncodeToString(got.body))
				want := map[string]any{"alg": name, "kid": `k"1`, "iat": iat, "jti": "j-1:k-1:" + strconv.FormatInt(int64(iat), 10), "n": 7.0,
					"aud": []any{"a", 1.5, true}, "crit": []any{"iat"}}
				if unencoded {
					content = append([]byte(parts[0]+"."), got.body...)
					want["b64"], want["crit"] = false, []any{"b64", "iat"}
				}
				if !reflect.DeepEqual(protected, want) || strings.Contains(string(header), `"1.50"`) {
					t.Errorf("protected: %s, want %v", header, want)
				}
				how := algorithm
				if how == "es256" {
					how = "es256-raw"
				}
				if !verified(t, how, key.Public(), content, signature) {
					t.Errorf("%s is not signed by %x", content, signature)
				}
				if verified(t, how, key.Public(), append(content, ' '), signature) {
					t.Error("another body is signed too")
				}
			})
		}
	}
}

// A key of the wrong kind is refused when the client is made, and no error has anything of it.
func TestKeysThatCantSign(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sign Sign
		want string
	}{
		{Sign{Key: keyFor(t, "rs256"), Algorithm: "es256"}, `sign: algorithm: "es256" is unknown for a private key of this kind`},
		{Sign{Key: keyFor(t, "es256"), Algorithm: "rs256"}, `"rs256" is unknown for a private key of this kind`},
		{Sign{Key: keyFor(t, "ed25519"), Algorithm: "sha256"}, `"sha256" is unknown for a private key`},
		{Sign{Algorithm: "rs256", Secret: []byte(canary)}, `"rs256" is unknown for a secret`},
		{Sign{}, "secret: it is empty"},
		{Sign{Secret: []byte(canary), JWS: &JWS{}}, `jws: the algorithm "" can't be used`},
		{Sign{Key: keyFor(t, "es256-raw"), Algorithm: "es256-raw", JWS: &JWS{}}, `jws: the algorithm "es256-raw" can't be used`},
	} {
		c.sign.Header = "X-Signature"
		if _, err := New(Config{URL: "https://x.example", Sign: c.sign}); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	// What the machine can't sign is not the job's fault.
	s, err := newSigner(Sign{Header: "S", Key: keyFor(t, "ed25519"), Algorithm: "ed25519", Content: "{body}"})
	if err != nil {
		t.Fatal(err)
	}
	s.raw = func([]byte) ([]byte, error) { return nil, io.ErrUnexpectedEOF }
	m := message{head: *httptest.NewRequest(http.MethodPost, "https://x.example/", nil)}
	if err := s.sign(&m, call("j"), time.Now()); !errors.Is(err, job.ErrLocal) || m.head.Header.Get("S") != "" {
		t.Errorf("%v, %v", err, m.head.Header)
	}
}
