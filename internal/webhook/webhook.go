// Package webhook sends outcomes to a receiver as Standard Webhooks: signed, each as a CloudEvent, in order
// within a job, and repeated until the receiver has accepted it.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"spillway/internal/feed"
	"spillway/internal/job"
)

// Config says where to send outcomes and how to sign them.
type Config struct {
	URL string
	// Secrets sign every message, each separately: a receiver accepts any of them, so that it can change from
	// one to the next.
	Secrets []string
	// Reader is for errors: the reader whose acknowledgement skips a refused outcome.
	Reader string
	// Now is the clock. Nil: the machine's.
	Now func() time.Time
}

const (
	prefix    = "whsec_"
	leastKey  = 24 // bytes, by the standard
	mostKey   = 64
	lanes     = 16 // outcomes in flight at once
	within    = 30 * time.Second
	mostDrain = 64 << 10 // bytes of an answer that are read, so that its connection can be reused
)

// Sender sends outcomes. It is not safe for concurrent use.
type Sender struct {
	cfg    Config
	keys   [][]byte
	client *http.Client
	// sent are outcomes after the first one not accepted, by cursor: they are not sent again.
	sent  map[string]map[string]bool
	mu    sync.Mutex
	until time.Time // earliest time of the next try
}

// New returns a Sender. The error has code usage, and contains nothing of the address or a secret.
func New(cfg Config) (*Sender, error) {
	at, err := url.Parse(cfg.URL)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" {
		return nil, &job.Error{Code: job.CodeUsage, Message: "the address of the receiver can't be read", Hint: "write https://host/path"}
	}
	s := &Sender{cfg: cfg, sent: map[string]map[string]bool{}}
	if s.cfg.Now == nil {
		s.cfg.Now = time.Now
	}
	for _, secret := range cfg.Secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, prefix))
		if err != nil || !strings.HasPrefix(secret, prefix) || len(key) < leastKey || len(key) > mostKey {
			return nil, &job.Error{Code: job.CodeUsage, Message: "a secret of the webhooks is none",
				Hint: "it is whsec_ and 24 to 64 random bytes in base64: echo whsec_$(head -c 32 /dev/urandom | base64)"}
		}
		s.keys = append(s.keys, key)
	}
	if len(s.keys) == 0 || len(s.keys) > 2 {
		return nil, &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("there are %d secrets for the webhooks", len(s.keys)), Hint: "give one, or two while the receiver changes from one to the other"}
	}
	way := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: lanes, IdleConnTimeout: 90 * time.Second}
	s.client = &http.Client{Transport: way, Timeout: within, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s, nil
}

// Begin returns what the reader has acknowledged, because the receiver stores no position.
func (s *Sender) Begin(_ context.Context, _, acked, _ string) (string, error) { return acked, nil }

// Put sends outcomes: those of one job in order, and those of a batch after all before it. It returns the
// cursor up to which the receiver has accepted all. An error with code unavailable says that it could not
// accept the next one now; one with code failed, that it refused it. When ctx ends, outcomes in flight are
// completed, and no more are sent.
func (s *Sender) Put(ctx context.Context, gateway, after string, page []feed.Outcome) (upto string, put int, err error) {
	if wait := s.until.Sub(s.cfg.Now()); wait > 0 {
		return after, 0, &job.Error{Code: job.CodeUnavailable, Message: fmt.Sprintf("the receiver wants to be asked again in %v", wait.Round(time.Second))}
	}
	if s.sent[gateway] == nil {
		s.sent[gateway] = map[string]bool{}
	}
	p := &sending{by: s, page: page, sent: s.sent[gateway], taken: make([]bool, len(page))}
	for from := 0; from < len(page) && ctx.Err() == nil && p.err == nil; {
		to := from
		for to < len(page) && page[to].State != feed.BatchDone {
			to++
		}
		p.several(ctx, from, to)
		if to < len(page) && p.err == nil && ctx.Err() == nil {
			p.one(ctx, to)
		}
		from = to + 1
	}
	upto = after
	gap := false
	for i, taken := range p.taken {
		gap = gap || !taken
		switch cursor := page[i].Cursor; {
		case !gap:
			upto = cursor
			delete(p.sent, cursor)
		case taken:
			p.sent[cursor] = true
		}
	}
	return upto, p.put, p.err
}

// sending is one Put.
type sending struct {
	by   *Sender
	page []feed.Outcome
	sent map[string]bool

	mu    sync.Mutex
	taken []bool
	put   int
	first int   // the first one not accepted
	err   error // why
}

// several sends some outcomes concurrently, in lanes: those of one job share a lane.
func (p *sending) several(ctx context.Context, from, to int) {
	var work sync.WaitGroup
	for lane := range uint32(lanes) {
		work.Go(func() {
			for i := from; i < to && ctx.Err() == nil; i++ {
				if laneOf(p.page[i].ID) != lane {
					continue
				}
				if !p.one(ctx, i) {
					return
				}
			}
		})
	}
	work.Wait()
}

func laneOf(id string) uint32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, id)
	return h.Sum32() % lanes
}

// one sends an outcome, unless it was accepted before, and reports whether it is accepted. Earlier outcomes in
// other lanes are sent all the same, so that everything before the first failed one is accepted.
func (p *sending) one(ctx context.Context, i int) bool {
	o := p.page[i]
	again := p.sent[o.Cursor] // not written concurrently
	var err error
	if !again {
		err = p.by.send(context.WithoutCancel(ctx), o)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if i < p.first || p.err == nil {
			p.first, p.err = i, err
		}
		return false
	}
	p.taken[i] = true
	if !again {
		p.put++
	}
	return true
}

// event is an outcome as a CloudEvent.
type event struct {
	SpecVersion string       `json:"specversion"`
	ID          string       `json:"id"`
	Source      string       `json:"source"`
	Type        string       `json:"type"`
	Subject     string       `json:"subject,omitempty"` // the job's id, or the batch's name
	Time        time.Time    `json:"time"`
	ContentType string       `json:"datacontenttype"`
	Data        feed.Outcome `json:"data"`
}

func eventOf(o feed.Outcome) event {
	subject := o.ID
	if o.State == feed.BatchDone {
		subject = o.Batch
	}
	return event{"1.0", o.Gateway + "_" + o.Cursor, "/spillway/gateways/" + o.Gateway, "spillway.outcome." + o.State, subject, o.At, "application/json", o}
}

// send sends one outcome, once.
func (s *Sender) send(ctx context.Context, o feed.Outcome) error {
	e := eventOf(o)
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return bare(err)
	}
	at := strconv.FormatInt(s.cfg.Now().Unix(), 10)
	r.Header.Set("Content-Type", "application/cloudevents+json")
	r.Header.Set("User-Agent", "spillway")
	r.Header.Set("Webhook-Id", e.ID)
	r.Header.Set("Webhook-Timestamp", at)
	r.Header.Set("Webhook-Signature", s.sign(e.ID, at, body))
	answer, err := s.client.Do(r)
	if err != nil {
		return &job.Error{Code: job.CodeUnavailable, Message: "the receiver of webhooks is away", Err: bare(err), Hint: "it is sent again"}
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, mostDrain) // the answer's content is ignored
	return s.judge(o, answer)
}

// sign returns the signatures of a message, one for each key.
func (s *Sender) sign(id, at string, body []byte) string {
	var all []string
	for _, key := range s.keys {
		h := hmac.New(sha256.New, key)
		_, _ = io.WriteString(h, id+"."+at+".")
		_, _ = h.Write(body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
	}
	return strings.Join(all, " ")
}

// judge returns what an answer means: accepted, not now, or refused.
func (s *Sender) judge(o feed.Outcome, answer *http.Response) error {
	status := answer.StatusCode
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		s.hold(answer.Header.Get("Retry-After"))
		return &job.Error{Code: job.CodeUnavailable, Message: fmt.Sprintf("the receiver of webhooks answers HTTP %d", status), Hint: "it is sent again"}
	}
	what := fmt.Sprintf("job %s (%s)", o.ID, o.State)
	if o.State == feed.BatchDone {
		what = "batch " + o.Batch
	}
	return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("the receiver has refused the outcome %s of %s at %s: HTTP %d; all before it were taken", o.Cursor, what, o.Gateway, status),
		Hint: fmt.Sprintf("nothing is lost: the feed keeps it, and what comes behind it. Mend the receiver and start again. To pass over this one: dispatcher outcomes -g %s --reader %s --limit 1 --ack", o.Gateway, s.cfg.Reader)}
}

// hold sets the earliest time of the next try: in so many seconds, or at a time, but at most an hour from now.
func (s *Sender) hold(text string) {
	now := s.cfg.Now()
	until, err := http.ParseTime(text)
	if seconds, errSeconds := strconv.Atoi(text); errSeconds == nil {
		until, err = now.Add(time.Duration(min(seconds, 3600))*time.Second), nil
	}
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if latest := now.Add(time.Hour); until.After(latest) {
		until = latest
	}
	if until.After(s.until) {
		s.until = until
	}
}

// bare returns an error of net/http without the address, which may contain a secret.
func bare(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
