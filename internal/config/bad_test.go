package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// canary is what a secret looks like in these tests. No message may ever hold it.
const canary = "sk_canary"

// testEnv has a few variables for files that want some.
func testEnv(name string) (string, bool) {
	value, ok := map[string]string{
		"EMPTY":            "",
		"CANARY":           canary,
		"CANARY_LINE":      canary + "\n",
		"STRIPE_KEY":       canary,
		"ADYEN_KEY":        canary,
		"DISPATCHER_TOKEN": canary,
	}[name]
	return value, ok
}

// badFiles says what is reported of each testdata/bad-*.yaml, which has one mistake (many.yaml has many).
var badFiles = map[string][]string{
	"admission-burst-slow": {
		`9:14: gateways.stripe.admission.burst: a burst of 1000000 takes too long to fill at 1/365d: make the burst smaller`,
	},
	"admission-burst-leaky": {
		`7:67: gateways.stripe.admission.burst: a burst of 1000000 takes too long to fill at 1/365d: make the burst smaller`,
	},
	"admission-burst-window": {
		`7:49: gateways.stripe.admission.burst: a fixed-window has no burst, it takes what its limits say: take burst out, or use token-bucket or leaky-bucket`,
	},
	"admission-burst": {
		`7:24: gateways.stripe.admission.burst: "0" is too small: give at least 1`,
	},
	"admission-limit": {
		`7:26: gateways.stripe.admission.limits[0]: "100/" is not a limit: write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s`,
	},
	"algorithm-unknown": {
		`7:28: gateways.stripe.admission.algorithm: "tokenbucket" is not an algorithm: did you mean token-bucket?`,
	},
	"alias": {
		`6:15: gateways.stripe.leak.limits: anchors, aliases and tags (& * !) are not read here: write the value out, or in double quotes`,
	},
	"amount-empty": {
		`7:5: gateways.stripe.amount.field: is missing: name the payload's field that holds the amount in minor units`,
	},
	"amount-bounds": {
		`7:47: gateways.stripe.amount.most: most, 99, is below least, 100: no amount could be used`,
	},
	"amount-most": {
		`7:35: gateways.stripe.amount.most: "9007199254740992" is too large: give at most 9007199254740991`,
	},
	"amount-path": {
		`7:21: gateways.stripe.amount.field: "order..total" is not a field: write its name, with dots between the levels, like amount or order.total`,
	},
	"anchor": {
		`6:15: gateways.stripe.leak.limits: anchors, aliases and tags (& * !) are not read here: write the value out, or in double quotes`,
	},
	"answers-all": {
		`7:16: gateways.stripe.answers[0]: the rule would match every answer: give it a status, a header or a body`,
	},
	"answers-body-empty": {
		`7:29: gateways.stripe.answers[0].body: this is empty, so it asks for nothing: write a field of the answer's body and its value, like {error.code: busy}`,
	},
	"answers-body-list": {
		`7:23: gateways.stripe.answers[0].body.code[0]: this is not a single value: write one, such as a text or a number`,
	},
	"answers-body-path": {
		`7:23: gateways.stripe.answers[0].body["error..code"]: "error..code" is not a field: write its name, with dots between the levels, like amount or order.total`,
	},
	"answers-empty": {
		`7:5: gateways.stripe.answers: the list is empty: write at least one rule, like {status: 429, then: hold}`,
	},
	"answers-header-empty": {
		`7:16: gateways.stripe.answers[0].header: this is empty, so it asks for nothing: write the answer's header and its value, like {Reason: busy}`,
	},
	"answers-key": {
		`7:29: gateways.stripe.answers[0].headers: unknown key: did you mean header?`,
	},
	"answers-no-then": {
		`7:16: gateways.stripe.answers[0].then: is missing: say what such an answer means: done, hold, retry, fewer, refused, unknown, accepted or new_key`,
	},
	"answers-profile": {
		`7:14: gateways.stripe.answers: "strip" is not a profile of answers: did you mean stripe?`,
	},
	"answers-rule-text": {
		`7:15: gateways.stripe.answers[0]: this is not a mapping: write its keys below it, each as key: value`,
	},
	"answers-rules": {
		`7:39: gateways.stripe.answers.rules: this is not a list: write at least one rule, like {status: 429, then: hold}`,
	},
	"answers-status-class": {
		`8:17: gateways.stripe.answers[0].status: "6xx" is not a number: write a whole one from 100 to 599`,
	},
	"answers-status": {
		`7:24: gateways.stripe.answers[0].status: "42" is too small: give at least 100`,
	},
	"answers-then": {
		`7:35: gateways.stripe.answers[0].then: "wait" is not a verdict: use one of done, hold, retry, fewer, refused, unknown, accepted, new_key`,
	},
	"attempts": {
		`7:23: gateways.stripe.retry.attempts: "0" is too small: give at least 1`,
	},
	"burst-above-limit": {
		`7:14: gateways.stripe.leak.burst: 51 calls can't start together within 50/m: give at most 50`,
	},
	"burst-fraction": {
		`7:14: gateways.stripe.leak.burst: "1.5" is not a number: write a whole one from 1`,
	},
	"burst-negative": {
		`7:14: gateways.stripe.leak.burst: "-1" is too small: give at least 1`,
	},
	"burst-text": {
		`7:14: gateways.stripe.leak.burst: "many" is not a number: write a whole one from 1`,
	},
	"burst-zero": {
		`7:14: gateways.stripe.leak.burst: "0" is too small: give at least 1`,
	},
	"circuit-word": {
		`7:14: gateways.stripe.circuit: "on" is not a circuit: write off, or its keys, like {failures: 5, ratio: 50%}`,
	},
	"approval-always": {
		`7:25: gateways.stripe.approval.discard: "sometimes" is not a choice: use one of always, never`,
	},
	"approval-replays": {
		`7:29: gateways.stripe.approval.replay_over: "some" is not a number of jobs: write a whole one from 0, above which a replay needs an approval, or never`,
	},
	"approval-sum": {
		`7:28: gateways.stripe.approval.batch_over: "100000" is not a sum: a sum begins with its currency as ISO 4217 lists it, like EUR 100000`,
	},
	"approval-twice": {
		`8:16: gateways.stripe.approval.batch_over: there are two sums in EUR: keep one of them`,
	},
	"approval-amount": {
		`7:28: gateways.stripe.approval.batch_over: sums of batches are known only where amount has a field and a currency: say where payloads have them`,
	},
	"brake-word": {
		`7:18: gateways.stripe.batch_brake: "on" is not a brake of batches: write off, or its keys, like {calls: 50, refused: 90%}`,
	},
	"brake-calls": {
		`7:26: gateways.stripe.batch_brake.calls: "1" is too small: give at least 2`,
	},
	"brakes-amount": {
		`8:5: gateways.stripe.brakes: brakes go by the money of each job: say where it is, amount: {field: amount, currency: currency}`,
	},
	"brakes-currency": {
		`8:22: gateways.stripe.brakes[0].limit: "EUX 50000/1m" has no currency that ISO 4217 lists: write a currency and an amount in its units, like EUR 20000 or EUR 99.50`,
		`8:46: gateways.stripe.brakes[1].single: "EUR 99.999" is not an amount of money: write a currency and an amount in its units, like EUR 20000 or EUR 99.50`,
	},
	"brakes-twice": {
		`8:45: gateways.stripe.brakes[1].limit: "EUR 10/60s" is the second limit of this currency and window: keep one of them`,
		`8:84: gateways.stripe.brakes[3].single: "EUR 6" is the second single of this currency: keep one of them`,
	},
	"brakes-window": {
		`8:22: gateways.stripe.brakes[0].limit: "EUR 50000/5s" has a window that can't be kept: give whole seconds, from 10s to 31d`,
		`8:45: gateways.stripe.brakes[1].limit: "EUR 50000" is not a limit of money: write a currency, an amount in its units and a window, like EUR 50000/1m or EUR 2000000/24h`,
		`8:65: gateways.stripe.brakes[2].limit: "EUR 0/1m" lets no money through: give more than 0; to stop a gateway there is dispatcher pause`,
	},
	"outcomes-word": {
		`7:15: gateways.stripe.outcomes: "on" does not say who reads the outcomes: write off, or its keys, like {readers: [ledger], max_behind: 1000000}`,
	},
	"outcomes-readers": {
		`8:25: gateways.stripe.outcomes.readers[1]: "ledger" is there twice: keep one of them`,
		`8:33: gateways.stripe.outcomes.readers[2]: "Mail er" is not a reader's name: use up to 40 lower-case letters, digits, _ and -, starting with a letter or digit`,
		`9:13: gateways.stripe.outcomes.keep: "1ms" is too short: give at least 1s`,
		`10:13: gateways.stripe.outcomes.then: "wait" is not a way: use one of hold, drop`,
	},
	"circuit-failures": {
		`7:25: gateways.stripe.circuit.failures: "1" is too small: give at least 2`,
	},
	"circuit-ratio": {
		`7:22: gateways.stripe.circuit.ratio: "0.5" is not a share: write whole percent, from 1% to 100%`,
	},
	"circuit-ratio-high": {
		`7:22: gateways.stripe.circuit.ratio: "101%" is not a share: write whole percent, from 1% to 100%`,
	},
	"circuit-calls": {
		`7:22: gateways.stripe.circuit.calls: "1" is too small: give at least 2`,
	},
	"circuit-window-short": {
		`7:23: gateways.stripe.circuit.window: "1s" is too short: give at least 5s`,
	},
	"circuit-window-long": {
		`7:23: gateways.stripe.circuit.window: "1h" is too long: give at most 2m`,
	},
	"pan-then": {
		`7:17: gateways.stripe.pan.then: "drop" is not a way: use one of refuse, mask, allow`,
	},
	"erase-word": {
		`7:22: gateways.stripe.erase.payload: "never" does not say when payloads are erased: write when_done, or how long after that all else goes, like 720h`,
	},
	"erase-short": {
		`7:22: gateways.stripe.erase.payload: "0s" is too short: give at least 1s`,
	},
	"pan-allow-all": {
		`7:24: gateways.stripe.pan.allow: with then: allow every field may have a card number: take allow out, or then`,
	},
	"parked-negative": {
		`7:20: gateways.stripe.parked.most: "-1" is too small: give at least 0`,
	},
	"parked-size": {
		`7:21: gateways.stripe.parked.bytes: "lots" is not a size: write it like 512MiB or 4GiB`,
	},
	"hold-short": {
		`7:17: gateways.stripe.hold.max: "10ms" is too short: give at least 1s`,
	},
	"hold-long": {
		`7:17: gateways.stripe.hold.max: "8d" is too long: give at most 7d`,
	},
	"circuit-max": {
		`7:20: gateways.stripe.circuit.max: "10ms" is too short: give at least 100ms`,
	},
	"circuit-key": {
		`7:15: gateways.stripe.circuit.failure: unknown key: did you mean failures?`,
	},
	"circuit-list": {
		`7:5: gateways.stripe.circuit: this is not a mapping: write its keys below it, each as key: value`,
	},
	"colon-in-text": {
		`6:24: not valid YAML: mapping value is not allowed in this context: put a text that has a colon and a space into double quotes, or mend the indent of the next line`,
	},
	"comments-only": {
		`1:1: the file is empty: it needs at least gateways, with a request.url and leak.limits for each`,
	},
	"control-character": {
		`1:9: the byte 0x00 is not text: save the file as UTF-8, and write such a character as an escape in double quotes`,
	},
	"dedupe-long": {
		`7:13: gateways.stripe.dedupe: "999999999999d" is too long: at most 106751d, which is 292 years, can be kept`,
	},
	"dedupe-no-unit": {
		`7:13: gateways.stripe.dedupe: "30" is not a duration: write a number with a unit ns, us, ms, s, m, h or d, like 500ms, 30s, 1h30m or 30d`,
	},
	"dedupe-word": {
		`7:13: gateways.stripe.dedupe: "a month" is not a duration: write a number with a unit ns, us, ms, s, m, h or d, like 500ms, 30s, 1h30m or 30d`,
	},
	"dedupe-zero": {
		`7:13: gateways.stripe.dedupe: "0" is too short: give at least 1s`,
	},
	"dollar-default": {
		`1:9: listen: "127.0.0.1:${PORT:-9400}" has a $ that begins no variable: write ${NAME} for a variable, $$ for a dollar sign`,
	},
	"dollar": {
		`5:32: gateways.stripe.request.headers.Authorization: <secret> has a $ that begins no variable: write ${NAME} for a variable, $$ for a dollar sign`,
	},
	"duplicate-gateway": {
		`7:3: gateways.stripe: the key is there twice, first in line 2: keep one of them`,
	},
	"duplicate-key": {
		`7:7: gateways.stripe.leak.limits: the key is there twice, first in line 6: keep one of them`,
	},
	"empty-variable": {
		`5:32: gateways.stripe.request.headers.Authorization: ${EMPTY} is empty: set it in the environment of this command`,
	},
	"empty": {
		`1:1: the file is empty: it needs at least gateways, with a request.url and leak.limits for each`,
	},
	"encoding": {
		`5:17: gateways.stripe.request.encoding: "xml" is not an encoding: use one of json, form`,
	},
	"form-get": {
		`6:17: gateways.stripe.request.encoding: a GET has no body, so there is nothing to encode as a form: take encoding out, or use POST`,
	},
	"gateway-name-odd": {
		`2:3: gateways["my.gateway\n"]: "my.gateway\n" is not a gateway's name: use lower-case letters, digits, _ and -, starting with a letter or digit`,
	},
	"gateway-name": {
		`2:3: gateways.Stripe: "Stripe" is not a gateway's name: use lower-case letters, digits, _ and -, starting with a letter or digit`,
	},
	"gateway-null": {
		`2:3: gateways.stripe: there is no value: write its keys below it, each as key: value, or take the line out`,
	},
	"gateways-empty": {
		`1:1: gateways: there are no gateways: name at least one, with its request.url and leak.limits`,
	},
	"gateways-null": {
		`1:1: gateways: there is no value: write its keys below it, each as key: value, or take the line out`,
	},
	"header-control": {
		`5:24: gateways.stripe.request.headers.X-Key: <secret> has a control character in it, which HTTP refuses: take it out`,
	},
	"header-host": {
		`5:17: gateways.stripe.request.headers.Host: "Host" is a header that HTTP fills in by itself: take it out`,
	},
	"header-list": {
		`5:17: gateways.stripe.request.headers.X-Key: this is not a single value: write one, such as a text or a number`,
	},
	"header-name": {
		`5:17: gateways.stripe.request.headers["X Key"]: "X Key" is not a header's name: use letters, digits and -, with no space`,
	},
	"header-twice": {
		`5:27: gateways.stripe.request.headers.x-key: "x-key" is the same header as X-Key: keep one of them`,
	},
	"header-value": {
		`5:24: gateways.stripe.request.headers.X-Key: <secret> has a line end in it, which HTTP refuses: does the variable's value end in one?`,
	},
	"headers-list": {
		`5:7: gateways.stripe.request.headers: this is not a mapping: write its keys below it, each as key: value`,
	},
	"in-flight": {
		`7:22: gateways.stripe.leak.max_in_flight: "-1" is too small: give at least 0`,
	},
	"jitter-default": {
		`6:7: gateways.stripe.leak.limits: a jitter of 5ms (the default) is more than half the window of 1/2ms: give leak.jitter of at most 1ms`,
	},
	"jitter-negative": {
		`7:15: gateways.stripe.leak.jitter: "-5ms" is negative: write a number with a unit ns, us, ms, s, m, h or d, like 500ms, 30s, 1h30m or 30d`,
	},
	"jitter": {
		`7:15: gateways.stripe.leak.jitter: a jitter of 600ms is more than half the window of 100/s: give leak.jitter of at most 500ms`,
	},
	"key-header-name": {
		`5:27: gateways.stripe.request.idempotency_header: "Idempotency Key" is not a header's name: use letters, digits and -, with no space`,
	},
	"key-header-twice": {
		`5:34: gateways.stripe.request.headers.idempotency-key: this is the idempotency header, which each job fills with its own key: take it out here`,
	},
	"key-lifetime-zero": {
		`5:21: gateways.stripe.request.key_lifetime: a key that is forgotten at once protects nothing: give the gateway's own lifetime, or, where it has no keys, write idempotency_header: ""`,
	},
	"leak-is-text": {
		`5:11: gateways.stripe.leak: this is not a mapping: write its keys below it, each as key: value`,
	},
	"limit-huge": {
		`6:16: gateways.stripe.leak.limits[0]: "99999999999999999999/s" allows too many calls: give at most 70368744177664`,
	},
	"limit-is-mapping": {
		`6:17: gateways.stripe.leak.limits[0]: this is not a single value: write one, such as a text or a number`,
	},
	"limit-negative": {
		`6:16: gateways.stripe.leak.limits[0]: "-5/s" is not a limit: write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s`,
	},
	"limit-text": {
		`6:16: gateways.stripe.leak.limits[0]: "fast" is not a limit: write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s`,
	},
	"limit-unit": {
		`6:16: gateways.stripe.leak.limits[0]: "100/x" is not a limit: write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s`,
	},
	"limit-window-long": {
		`6:16: gateways.stripe.leak.limits[0]: "1/400d" has a window of more than a year: give at most 365d`,
	},
	"limits-many": {
		`6:7: gateways.stripe.leak.limits: 9 limits are too many: keep the 8 that bind`,
	},
	"limit-window-zero": {
		`6:16: gateways.stripe.leak.limits[0]: "1/0s" has a window that can't be kept: give at least 1us, in whole microseconds`,
	},
	"limit-window": {
		`6:16: gateways.stripe.leak.limits[0]: "1/10ns" has a window that can't be kept: give at least 1us, in whole microseconds`,
	},
	"limit-zero": {
		`6:16: gateways.stripe.leak.limits[0]: "0/s" lets no call through: give at least 1; to stop a gateway there is dispatcher pause`,
	},
	"limits-block": {
		`8:11: gateways.stripe.leak.limits[1]: "50 per minute" is not a limit: write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s`,
	},
	"limits-empty": {
		`6:7: gateways.stripe.leak.limits: the list is empty: write at least one limit, like [100/s] or [100/s, 5000/m]`,
	},
	"limits-same-window": {
		`6:23: gateways.stripe.leak.limits[1]: "300/1000ms" has the same window as 100/s: keep the lower of the two`,
	},
	"limits-scalar": {
		`6:15: gateways.stripe.leak.limits: this is not a list: write at least one limit, like [100/s] or [100/s, 5000/m]`,
	},
	"listen-port": {
		`1:9: listen: "127.0.0.1:99999" is not an address to listen on: write host:port, like 127.0.0.1:9400, or "" to serve nothing`,
	},
	"listen": {
		`1:9: listen: "9400" is not an address to listen on: write host:port, like 127.0.0.1:9400, or "" to serve nothing`,
	},
	"many": {
		`1:1: listn: unknown key: did you mean listen?`,
		`7:16: gateways.stripe.leak.limits[0]: "100/x" is not a limit: write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s`,
		`8:14: gateways.stripe.leak.burst: "0" is too small: give at least 1`,
		`9:13: gateways.stripe.dedupe: "1y" is not a duration: write a number with a unit ns, us, ms, s, m, h or d, like 500ms, 30s, 1h30m or 30d`,
		`10:23: gateways.stripe.retry.attempts: "none" is not a number: write a whole one from 1 to 2147483647`,
		`10:36: gateways.stripe.retry.first: max, 10m (the default), is shorter than first, 1h: make max the longer one`,
	},
	"merge-key": {
		`7:5: gateways.stripe: this is not a plain key: write key: value, and write shared parts (<<) out in full`,
	},
	"method-case": {
		`5:15: gateways.stripe.request.method: "post" is not a method: write POST`,
	},
	"method": {
		`5:15: gateways.stripe.request.method: "FETCH" is not a method: use one of GET, POST, PUT, PATCH, DELETE`,
	},
	"no-gateways": {
		`1:1: gateways: is missing: name at least one gateway, with its request.url and leak.limits`,
	},
	"no-leak": {
		`2:3: gateways.stripe.leak.limits: is missing: write what the gateway allows, like [100/s]`,
	},
	"no-limits": {
		`5:5: gateways.stripe.leak.limits: is missing: write what the gateway allows, like [100/s]`,
	},
	"no-url": {
		`2:3: gateways.stripe.request.url: is missing: write where the gateway is called, like https://api.example.com/v1/payments`,
	},
	"not-utf8": {
		`1:8: the byte 0xff is not text: save the file as UTF-8, and write such a character as an escape in double quotes`,
	},
	"null-value": {
		`7:7: gateways.stripe.leak.burst: there is no value: write one, such as a text or a number, or take the line out`,
	},
	"precision-huge": {
		`7:55: gateways.stripe.admission.precision: "1001" is too large: give at most 1000`,
	},
	"precision-bucket": {
		`7:28: gateways.stripe.admission.precision: a token-bucket (the default) has no precision: take precision out, or use sliding-window`,
	},
	"precision-log": {
		`7:52: gateways.stripe.admission.precision: a sliding-log has no precision: take precision out, or use sliding-window`,
	},
	"precision-text": {
		`7:55: gateways.stripe.admission.precision: "100ms" is not a number: write a whole one from 1 to 1000`,
	},
	"redis": {
		`1:8: redis: <secret> is not a Redis address: write redis://, rediss://, redis-socket://, redis-sentinel:// or redis-cluster:// and what follows it, like redis://127.0.0.1:6379/0, or embedded`,
	},
	"dedupe-scope": {
		`2:15: dedupe_scope: "everywhere" is not a scope of ids: use one of gateway, all`,
	},
	"wait-replicas": {
		`2:16: wait_replicas: "two" is not a number: write a whole one from 0 to 16`,
	},
	"wait-replicas-embedded": {
		`2:16: wait_replicas: the embedded Redis has no replicas to wait for: take wait_replicas out, or name a Redis server`,
	},
	"replay-far": {
		`7:13: gateways.stripe.replay: "sometimes" is not a way of replay: use one of auto, manual`,
	},
	"replay": {
		`7:13: gateways.stripe.replay: "automatic" is not a way of replay: use one of auto, manual`,
	},
	"retry-order-default": {
		`7:20: gateways.stripe.retry.first: max, 10m (the default), is shorter than first, 11m: make max the longer one`,
	},
	"retry-order": {
		`7:29: gateways.stripe.retry.max: max, 10s, is shorter than first, 1m: make max the longer one`,
	},
	"retry-zero": {
		`7:20: gateways.stripe.retry.first: "0" is too short: give at least 1ms`,
	},
	"tab": {
		`2:1: not valid YAML: found character '	' that cannot start any token: indent with spaces, not tabs`,
	},
	"tag": {
		`7:13: gateways.stripe.dedupe: anchors, aliases and tags (& * !) are not read here: write the value out, or in double quotes`,
	},
	"timeout-list": {
		`5:7: gateways.stripe.request.timeout: this is not a single value: write one, such as a text or a number`,
	},
	"timeout": {
		`5:16: gateways.stripe.request.timeout: "0s" is too short: give at least 1ms`,
	},
	"token-empty": {
		`1:8: token: "" is empty: give a token, or take the line out to serve loopback without one`,
	},
	"token-placeholder": {
		`1:8: token: <secret> is an example's placeholder, which everybody knows: make one with openssl rand -hex 16`,
	},
	"token-previous-alone": {
		`1:17: token_previous: there is no token that it was the one before: write token, or take token_previous out`,
	},
	"tokens-both": {
		`1:73: tokens[0].sha256: a token has one of the two: keep the digest, and take the secret out`,
	},
	"tokens-digest": {
		`1:44: tokens[0].sha256: <secret> is not a SHA-256 digest: write 64 hexadecimal digits`,
	},
	"tokens-digest-of-nothing": {
		`1:44: tokens[0].sha256: <secret> is the digest of nothing, so that anybody has the token: the variable was not set when it was made`,
	},
	"tokens-expires-empty": {
		`1:74: tokens[0].expires: "" is empty: write the day, like 2027-01-01, or take the line out for a token that never ends`,
	},
	"tokens-expires": {
		`1:74: tokens[0].expires: "soon" is not a day or a moment: write it like 2027-01-01, or 2027-01-01T12:00:00Z; a day ends the token with its first moment, in UTC`,
	},
	"tokens-gateway": {
		`1:11: tokens: the token ann is for gateway "strip", which the file does not have; did you mean stripe?`,
	},
	"tokens-key": {
		`1:36: tokens[0].token: unknown key: use one of name, person, role, secret, sha256, gateways, expires`,
	},
	"tokens-name": {
		`1:17: tokens[0].name: "Ann B" is not the name of a token: use up to 40 lower-case letters, digits, ., _, @ and -, starting with a letter or digit`,
	},
	"tokens-no-role": {
		`1:11: tokens[0].role: is missing: write one of metrics, viewer, producer, operator, approver, admin`,
	},
	"tokens-no-secret": {
		`1:11: tokens[0].secret: is missing: write secret: "${BILLING_TOKEN}", or sha256: with its digest in hex (printf %s "$TOKEN" | sha256sum)`,
	},
	"tokens-of-token": {
		`3:6: tokens: the token ann has the secret of token, which opens everything: give it one of its own`,
	},
	"tokens-other-role": {
		`3:6: tokens[1]: another token of the name ann, in line 2, has another role or other gateways: a name in the trail must mean one thing; give one of them another name`,
	},
	"tokens-other-person": {
		`3:6: tokens[1]: another token of the name ann, in line 2, is of another person: give one of them another name`,
	},
	"tokens-person": {
		`1:30: tokens[0].person: "Ann Bee" is not the name of a person: write it as the OpenID provider does, like ann@example.com, in up to 100 ASCII characters without spaces`,
	},
	"tokens-role": {
		`1:32: tokens[0].role: "prodcer" is not a role: did you mean producer?`,
	},
	"tokens-twice": {
		`3:6: tokens[1]: it has the secret of the token in line 2: each needs one of its own`,
	},
	"tokens-unset": {
		`1:44: tokens[0].secret: ${NO_SUCH_VARIABLE} is not set: set it in the environment of this command`,
	},
	"top-is-list": {
		`1:1: this is not a mapping: write its keys below it, each as key: value`,
	},
	"top-is-text": {
		`1:1: this is not a mapping: write its keys below it, each as key: value`,
	},
	"two-documents": {
		`8:1: a second document begins here: take out the --- before it, a configuration is one document`,
	},
	"secret-file": {
		`5:32: gateways.stripe.request.headers.Authorization: ${file:not-there.key} can't be read: no such file or directory: name a file that the user of this command may read`,
	},
	"secret-file-empty": {
		`5:32: gateways.stripe.request.headers.Authorization: ${file:testdata/empty.key} is empty: write the secret into the file`,
	},
	"unclosed-bracket": {
		`7:5: not valid YAML: ',' or ']' must be specified: close the bracket, and put a text with { } [ ] , or : inside brackets into double quotes`,
	},
	"unclosed-quote": {
		`5:32: not valid YAML: could not find end character of double-quoted text: close the quotes`,
	},
	"unknown-key-deep": {
		`7:7: gateways.stripe.leak.jiter: unknown key: did you mean jitter?`,
	},
	"unknown-key-no-idea": {
		`7:5: gateways.stripe.colour: unknown key: use one of like, request, answers, lookup, routes, lanes, priority, reference, amount, map, leak, admission, retry, circuit, hold, batch_brake, brakes, approval, parked, pan, erase, outcomes, replay, dedupe`,
	},
	"unknown-key": {
		`1:1: gatways: unknown key: did you mean gateways?`,
	},
	"unset-token": {
		`1:8: token: ${NOT_SET} is not set: set it in the environment of this command`,
	},
	"unset": {
		`5:32: gateways.stripe.request.headers.Authorization: ${NOT_SET} is not set: set it in the environment of this command`,
	},
	"url-brace-end": {
		`4:12: gateways.stripe.request.url: "https://api.example.com/id}" has a brace without its other half: {id}, {lane} and {payload.FIELD} are all there is`,
	},
	"url-brace": {
		`4:12: gateways.stripe.request.url: "https://api.example.com/{id" has a brace without its other half: {id}, {lane} and {payload.FIELD} are all there is`,
	},
	"url-fragment": {
		`4:12: gateways.stripe.request.url: "https://api.example.com/#v1" has a # part, which is never sent: take it out, or write %23`,
	},
	"url-ftp": {
		`4:12: gateways.stripe.request.url: "ftp://api.example.com/" does not begin with http:// or https://: write one like https://api.example.com/v1/payments`,
	},
	"url-host-placeholder": {
		`4:12: gateways.stripe.request.url: "https://{payload.region}.example.com/" has a placeholder in its host: limits are for one host, so give each its own gateway`,
	},
	"url-host": {
		`4:12: gateways.stripe.request.url: "https:///v1" has no host: write one like https://api.example.com/v1/payments`,
	},
	"url-password": {
		`4:12: gateways.stripe.request.url: "https://user:<secret>@/v1" has no host: write one like https://api.example.com/v1/payments`,
	},
	"url-placeholder-path": {
		`4:12: gateways.stripe.request.url: "https://api.example.com/{payload.}" has an unknown placeholder: {id}, {lane} and {payload.FIELD} are all there is`,
	},
	"url-placeholder": {
		`4:12: gateways.stripe.request.url: "https://api.example.com/{customer}" has an unknown placeholder: {id}, {lane} and {payload.FIELD} are all there is`,
	},
	"url-port": {
		`4:12: gateways.stripe.request.url: "https://api.example.com:99999/" has a port that does not exist: use 1 to 65535`,
	},
	"url-scheme": {
		`4:12: gateways.stripe.request.url: "api.example.com/v1" does not begin with http:// or https://: write one like https://api.example.com/v1/payments`,
	},
	"url-space": {
		`4:12: gateways.stripe.request.url: "https://api.example.com/a b" is not a URL: write one like https://api.example.com/v1/payments`,
	},
	"url-unparsable": {
		`4:12: gateways.stripe.request.url: "https://user:<secret>@api.example.com/%zz" is not a URL: write one like https://api.example.com/v1/payments`,
	},
	"variable-header": {
		`5:32: gateways.stripe.request.headers.Authorization: "${CANARY_LINE}" has a line end in it, which HTTP refuses: does the variable's value end in one?`,
	},
	"variable-in-braces": {
		`5:33: not valid YAML: ',' or '}' must be specified: close the bracket, and put a text with { } [ ] , or : inside brackets into double quotes`,
	},
	"variable-limit": {
		`6:16: gateways.stripe.leak.limits[0]: "${CANARY}" is not a limit: write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s`,
	},
	"variable-redis": {
		`1:8: redis: "${CANARY}" is not a Redis address: write redis://, rediss://, redis-socket://, redis-sentinel:// or redis-cluster:// and what follows it, like redis://127.0.0.1:6379/0, or embedded`,
	},
	"variable-url": {
		`4:12: gateways.stripe.request.url: "${CANARY}" does not begin with http:// or https://: write one like https://api.example.com/v1/payments`,
	},
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad-*.yaml")
	if err != nil || len(files) != len(badFiles) {
		t.Fatalf("%d files, %d rows in the table, %v", len(files), len(badFiles), err)
	}
	for name, want := range badFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := "bad-" + name + ".yaml"
			text, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(file, text, Options{Secrets: true, Env: testEnv})
			if err == nil {
				t.Fatal("no error")
			}
			for i, line := range want {
				want[i] = file + ":" + line
			}
			if got := err.Error(); got != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
			if strings.Contains(err.Error(), canary) {
				t.Error("the message shows a secret")
			}
		})
	}
}
