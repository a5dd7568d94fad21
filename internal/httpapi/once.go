package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"time"

	"spillway/internal/roles"
)

// Once stores the results of acts by Idempotency-Key.
type Once interface {
	// Begin starts an act, which counts as in progress while Renew is called at least every RenewEvery. An act
	// started before with this key is returned, or nil.
	Begin(ctx context.Context, key, digest string) (before *Kept, err error)
	Renew(ctx context.Context, key string) error
	// Keep stores the result for a day.
	Keep(ctx context.Context, key string, answer Kept) error
	// Drop removes the act, so that it can be started again.
	Drop(ctx context.Context, key string) error
}

// Kept is the act of an Idempotency-Key.
type Kept struct {
	Digest string `json:"digest"` // of the request
	// Status is the answer's; 0 while the act is in progress.
	Status int `json:"status,omitempty"`
	// Document is the answer, or the problem.
	Document json.RawMessage `json:"document,omitempty"`
}

// RenewEvery is how often an act in progress is renewed.
const RenewEvery = 10 * time.Second

// mostKey bounds an Idempotency-Key, in bytes.
const mostKey = 200

// ofWhom returns an Idempotency-Key separated by sender: results must not be visible to other tokens.
func ofWhom(r *http.Request, key string) string {
	if who, _ := roles.Of(r.Context()); who.Name != "" {
		return who.Name + " " + key // a name contains no blank
	}
	return key
}

// once does an act, unless one with this key was done before: then it repeats that answer.
func (t *teller) once(key, sent string, request any) {
	if len(t.r.Header.Get("Idempotency-Key")) > mostKey || t.a.cfg.Once == nil {
		newProblem(codeRequest, "the Idempotency-Key has more than 200 bytes", "make a short one up: a UUID").answer(t.w)
		return
	}
	sum := sha256.Sum256([]byte(sent))
	digest := hex.EncodeToString(sum[:])
	before, err := t.a.cfg.Once.Begin(t.r.Context(), key, digest)
	switch {
	case err != nil:
		t.refuse(t.a.problemOf(t.r, err))
	case before == nil:
		t.keep(key, digest, request)
	case before.Digest != digest:
		t.refuse(newProblem(codeKeyReused, "another request was sent with this Idempotency-Key", "make up a new one for each act"))
	case before.Status == 0:
		p := newProblem(codeUnderWay, "an act with this Idempotency-Key is under way", "ask again until it is over: the answer is kept")
		p.RetryAfter = seconds(awayAfter)
		t.refuse(p)
	default:
		t.w.Header().Set("Idempotency-Replayed", "true")
		t.again(*before)
	}
}

// again repeats the answer of an earlier act.
func (t *teller) again(k Kept) {
	if k.Status == http.StatusOK {
		t.answer(append(k.Document, '\n'))
		return
	}
	var p problem
	_ = json.Unmarshal(k.Document, &p) // it was written here
	t.refuse(p)
}

// keep does the act and stores its answer. An act that failed here, or because something is unreachable, can be
// repeated; one that stopped halfway then continues.
func (t *teller) keep(key, digest string, request any) {
	v, err := t.doRenewed(key, request)
	k := Kept{Digest: digest, Status: http.StatusOK}
	var p problem
	if err != nil {
		p = t.a.operationProblem(t.r, t.o, err)
		k.Status = p.Status
		k.Document, _ = json.Marshal(p) // it has only texts and numbers
	} else if k.Document, err = encode(v); err != nil {
		p = t.a.problemOf(t.r, err)
		k.Status = p.Status
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.r.Context()), lookTime)
	defer cancel()
	half, is := v.(interface{ Unfinished() bool })
	if k.Status >= http.StatusInternalServerError || is && half.Unfinished() {
		err = t.a.cfg.Once.Drop(ctx, key)
	} else {
		err = t.a.cfg.Once.Keep(ctx, key, k)
	}
	if err != nil {
		t.a.cfg.Log.Warn("the answer of an act was not kept: sent again, it is done again", "route", t.r.Pattern, "error", err)
	}
	if k.Status != http.StatusOK {
		t.refuse(p)
		return
	}
	t.answer(k.Document)
}

// doRenewed does an act, and renews it meanwhile.
func (t *teller) doRenewed(key string, request any) (any, error) {
	defer t.renew(key)()
	return t.do(request)
}

// renew renews an act in progress, until it is stopped.
func (t *teller) renew(key string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.r.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		again := time.NewTicker(RenewEvery)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				_ = t.a.cfg.Once.Renew(ctx, key) // at worst it is started twice, and each act is safe to repeat
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}
