package deadletter_test

import (
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
)

func TestRules(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	fresh, old := now.Add(-time.Hour), now.Add(-24*time.Hour)
	no := []job.Call{{Status: 402, Verdict: "refused"}}
	keys := deadletter.Rules{Keys: true, KeyLifetime: 24 * time.Hour, Now: now}
	anyway := keys
	anyway.ExpiredKeys = true
	none := deadletter.Rules{Now: now, ExpiredKeys: true}
	setBack := keys
	setBack.SetBack = 23*time.Hour + 10*time.Minute
	behind := keys
	behind.Beat = now.Add(23 * time.Hour)
	const forgotten = "the gateway has forgotten its idempotency key after 24h0m0s: look it up, or use --expired-keys"
	const noKeys = `an earlier call may have charged, and the gateway keeps no idempotency keys: look it up, then use "dlq resolve"`
	const late, alien = "its time to expire has passed", "not a job: there is nothing to send"
	for _, c := range []struct {
		name  string
		rules deadletter.Rules
		rec   job.Record
		key   job.KeyChange
		why   string
	}{
		{"never called", keys, job.Record{Reason: job.Rejected}, job.KeepKey, ""},
		{"a definite no", keys, job.Record{Reason: job.Refused, FirstCall: old, History: no}, job.NextKey, ""},
		{"a definite no after an unknown outcome", keys, job.Record{Reason: job.Refused, FirstCall: old, Unsure: true, History: no}, job.NextKey, ""},
		{"a no of an older version, while unsure, that may be about the repetition", keys, job.Record{Reason: job.Refused, FirstCall: fresh, Unsure: true,
			History: []job.Call{{Status: 400, Verdict: "refused"}}}, job.KeepKey, ""},
		{"... key forgotten", keys, job.Record{Reason: job.Refused, FirstCall: old, Unsure: true, History: []job.Call{{Status: 422, Verdict: "refused"}}}, "", forgotten},
		{"redirected by an older version", keys, job.Record{Reason: job.Refused, FirstCall: fresh, History: []job.Call{{Status: 303, Verdict: "refused"}}}, job.KeepKey, ""},
		{"... no keys", none, job.Record{Reason: job.Refused, FirstCall: fresh, History: []job.Call{{Status: 303, Verdict: "refused"}}}, "", noKeys},
		{"refused unsent after an unknown outcome", keys, job.Record{Reason: job.Refused, FirstCall: fresh, Unsure: true,
			History: []job.Call{{Verdict: "retry"}}}, job.KeepKey, ""},
		{"refused unsent, key forgotten", keys, job.Record{Reason: job.Refused, FirstCall: old, Unsure: true}, "", forgotten},
		{"exhausted, key lives", keys, job.Record{Reason: job.Exhausted, FirstCall: fresh, Unsure: true}, job.KeepKey, ""},
		{"key lives, the clock was set back since its first call", setBack, job.Record{Reason: job.Exhausted, FirstCall: fresh, Unsure: true}, "", forgotten},
		{"... mostly before it", setBack, job.Record{Reason: job.Exhausted, FirstCall: fresh, FirstCallBack: 23 * time.Hour, Unsure: true}, job.KeepKey, ""},
		{"key lives, and the clock is behind the last sign of life", behind, job.Record{Reason: job.Exhausted, FirstCall: fresh, Unsure: true}, "", forgotten},
		{"exhausted, key forgotten", keys, job.Record{Reason: job.Exhausted, FirstCall: old, Unsure: true}, "", forgotten},
		{"exhausted, key forgotten, nobody marked it", keys, job.Record{Reason: job.Exhausted, FirstCall: old}, "", forgotten},
		{"exhausted, key forgotten, anyway", anyway, job.Record{Reason: job.Exhausted, FirstCall: old, Unsure: true}, job.ForgetKey, ""},
		{"unknown, key lives", keys, job.Record{Reason: job.UnknownOutcome, FirstCall: fresh, Unsure: true}, job.KeepKey, ""},
		{"unknown, key forgotten", keys, job.Record{Reason: job.UnknownOutcome, FirstCall: old, Unsure: true}, "", forgotten},
		{"unknown, not marked", keys, job.Record{Reason: job.UnknownOutcome}, "", forgotten},
		{"unknown, no keys", none, job.Record{Reason: job.UnknownOutcome, FirstCall: fresh}, "", noKeys},
		{"exhausted, may have charged, no keys", none, job.Record{Reason: job.Exhausted, FirstCall: fresh, Unsure: true}, "", noKeys},
		{"exhausted, surely not charged, no keys", none, job.Record{Reason: job.Exhausted, FirstCall: old}, job.KeepKey, ""},
		{"cancelled before its first call", keys, job.Record{Reason: job.Cancelled}, job.KeepKey, ""},
		{"of a paused batch", anyway, job.Record{Reason: job.Paused, FirstCall: fresh}, "", `its batch is paused: "dispatcher batch resume" takes it in again`},
		{"expired", anyway, job.Record{Reason: job.Expired}, "", late},
		{"refused, and expired by now", keys, job.Record{Reason: job.Refused, Job: job.Job{Expires: now}}, "", late},
		{"refused, and expires later", keys, job.Record{Reason: job.Refused, Job: job.Job{Expires: now.Add(1)}}, job.NextKey, ""},
		{"not a job", anyway, job.Record{Reason: job.Unreadable}, "", alien},
	} {
		key, why := c.rules.Key(c.rec)
		want(t, c.name+": key", key, c.key)
		want(t, c.name+": why", why, c.why)
	}
	key, why := keys.NotDone(job.Record{Reason: job.UnknownOutcome, FirstCall: old, Unsure: true})
	want(t, "not done: key", key, job.SettleKey)
	want(t, "not done: why", why, "")
	_, why = keys.NotDone(job.Record{Reason: job.UnknownOutcome, Job: job.Job{Expires: old}})
	want(t, "not done, expired: why", why, "")
	_, why = keys.NotDone(job.Record{Reason: job.Refused})
	want(t, "not done, no doubt: why", why, "it can't have been charged, so there is nothing to settle: replay or discard it")
}
