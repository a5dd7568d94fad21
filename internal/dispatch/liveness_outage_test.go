package dispatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// play runs a scene in virtual time and passes the run to verdict.
func play(t *testing.T, processes int, limit int64, more string, troubles []trouble, scene func(r *trial), verdict func(t *testing.T, r *trial, parked map[string]job.Reason)) {
	t.Helper()
	testkit.Redis(t)
	name := testkit.Gateway(t)
	bubble(t, func(t *testing.T) {
		s := schedule{seed: 1, processes: processes, limit: limit, troubles: troubles}
		r := &trial{t: t, s: s, v: newVirtual(t, name, nil), gw: newEndpoint(s), rng: rand.New(rand.NewPCG(1, 3))}
		text := fmt.Sprintf("redis: %s\ngateways:\n  %s:\n    request: {url: \"http://gateway.invalid/\", timeout: %s, key_lifetime: 24h}\n    leak: {limits: [%d/s]}\n"+
			"    admission: {limits: [100000/s], burst: 100000}\n%s", testkit.Redis(t), name, patient, s.limit, more)
		var err error
		if r.cfg, err = config.Parse("x.yaml", []byte(text), config.Options{Secrets: true}); err != nil {
			t.Fatal(err)
		}
		r.start()
		scene(r)
		parked := map[string]job.Reason{}
		for rec, err := range Store(r.v.db.Client, r.cfg.Gateways[0]).List(t.Context(), deadletter.Filter{Reasons: job.Reasons()}) {
			r.must(err)
			parked[rec.Job.ID] = rec.Reason
		}
		r.stop()
		verdict(t, r, parked)
	})
}

func (r *trial) till(at time.Duration) { <-time.After(time.Until(r.gw.began.Add(at))) }

// over waits until all jobs have ended, because nothing happens after that, but not longer than at.
func (r *trial) over(at time.Duration) {
	books := Books(r.v.db.Client, r.cfg.Gateways[0])
	for end := r.gw.began.Add(at); time.Now().Before(end); <-time.After(time.Second) {
		s, err := books.Look(r.t.Context())
		if r.must(err); s.Queued+s.InFlight+s.Retrying+s.Scheduled == 0 {
			return
		}
	}
}

func (r *trial) good(n int) { r.enqueue(slices.Repeat([]fate{good}, n)) }

func exhausted(t *testing.T, r *trial, parked map[string]job.Reason) {
	n, by := 0, map[job.Reason]int{}
	for id, reason := range parked {
		if !r.gw.jobs[id].fate.bad() {
			n, by[reason] = n+1, by[reason]+1
		}
	}
	answers := map[string]int{}
	for _, c := range r.gw.calls {
		answers[c.answer]++
	}
	t.Logf("%d calls %v, good jobs parked: %v", len(r.gw.calls), answers, by)
	if n > 0 {
		t.Errorf("%d good jobs of %d are parked: %v", n, len(r.gw.order), by)
	}
}

// A real outage spends no attempts, however few jobs there are.
func TestAnOutageThatFewJobsMeetSpendsNoAttempts(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{broken, silent} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			play(t, 1, 20, "", []trouble{{kind, time.Second, 5 * time.Minute}}, func(r *trial) {
				r.good(10)
				r.till(2 * time.Second)
				r.good(4)
				r.over(20 * time.Minute)
			}, exhausted)
		})
	}
}

// An outage after short ones spends no attempts either.
func TestAnOutageAfterShortOnesSpendsNoAttempts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kind string
		jobs int
	}{{broken, 19}, {lockout, 15}, {broken, 60}}[:testkit.Often(2, 3)] {
		t.Run(fmt.Sprint(tc.kind, tc.jobs), func(t *testing.T) {
			t.Parallel()
			ts := []trouble{{tc.kind, 1 * time.Second, 2 * time.Second}, {tc.kind, 61 * time.Second, 62 * time.Second}, {tc.kind, 2 * time.Minute, 10 * time.Minute}}
			play(t, 1, 20, "", ts, func(r *trial) {
				r.good(100)
				r.till(60 * time.Second)
				r.good(100)
				r.till(2*time.Minute + time.Second)
				r.good(tc.jobs)
				r.over(30 * time.Minute)
			}, exhausted)
		})
	}
}

// A block of bad jobs does not delay the good ones behind it.
func TestABlockOfBadJobsHoldsNobodyForLong(t *testing.T) {
	t.Parallel()
	for _, f := range []fate{poisoned, forbidden} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			play(t, 1, 50, "", nil, func(r *trial) {
				r.enqueue(slices.Concat(slices.Repeat([]fate{good}, 50), slices.Repeat([]fate{f}, 200), slices.Repeat([]fate{good}, 100)))
				r.over(10 * time.Minute)
			}, func(t *testing.T, r *trial, parked map[string]job.Reason) {
				exhausted(t, r, parked)
				done, last := r.succeeded()
				t.Logf("%d good jobs done, the last after %s", done, last)
				if done < 150 || last > 30*time.Second {
					t.Errorf("%d of 150 good jobs done, the last after %s", done, last)
				}
			})
		})
	}
}

// Jobs whose key another program's call has are called as often as others that fail, and are parked.
func TestConflictsComeToAnEnd(t *testing.T) {
	t.Parallel()
	play(t, 1, 20, "", nil, func(r *trial) {
		r.enqueue(slices.Concat(slices.Repeat([]fate{good}, 150), slices.Repeat([]fate{contended}, 10), slices.Repeat([]fate{good}, 40)))
		r.over(20 * time.Minute)
	}, func(t *testing.T, r *trial, parked map[string]job.Reason) {
		exhausted(t, r, parked)
		most := r.cfg.Gateways[0].Retry.Attempts
		for id, j := range r.gw.jobs {
			if j.fate == contended && (parked[id] != job.Exhausted || len(j.calls) > most) {
				t.Errorf("%s: called %d times and parked as %q, want %d at most and exhausted", id, len(j.calls), parked[id], most)
			}
		}
	})
}

// A gateway whose real limit is below ours spends no attempts of good jobs.
func TestARealLimitSpendsNoAttempts(t *testing.T) {
	t.Parallel()
	for _, quota := range []int{5, 20}[:testkit.Often(1, 2)] {
		t.Run(fmt.Sprint(quota), func(t *testing.T) {
			t.Parallel()
			play(t, 1, 100, "", []trouble{{"a quota", 0, time.Hour}}, func(r *trial) {
				r.gw.quota = quota
				r.good(1000)
				r.over(10 * time.Minute)
			}, exhausted)
		})
	}
}

// A gateway that hung for a minute was down, so the hold was not in vain.
func TestAnOutageOfSilenceIsNoVainOne(t *testing.T) {
	t.Parallel()
	play(t, 1, 20, "", []trouble{{silent, time.Second, 61 * time.Second}}, func(r *trial) {
		r.good(400)
		r.over(3 * time.Minute)
	}, func(t *testing.T, r *trial, parked map[string]job.Reason) { exhausted(t, r, parked) })
}

// A hold that an older version of the program began counts as an outage, too.
func TestAHoldOfAnOlderVersionSpendsNoAttempts(t *testing.T) {
	t.Parallel()
	play(t, 1, 20, "", []trouble{{broken, 0, 10 * time.Minute}}, func(r *trial) {
		key := "spillway:{" + r.cfg.Gateways[0].Name + "}:hold"
		r.must(r.v.db.Client.HSet(r.t.Context(), key, "until", time.Now().Add(time.Second).UnixMicro(), "need", 1, "reason", "429", "delay", 1000000, "epoch", 1).Err())
		r.good(10)
		r.over(20 * time.Minute)
	}, exhausted)
}

// Saved answers that are repeated during an outage do not show that the gateway is back.
func TestRepeatedAnswersInAnOutageSpendNoAttempts(t *testing.T) {
	t.Parallel()
	play(t, 1, 20, "", []trouble{{"500 for all, saved ones repeated", time.Second, 10 * time.Minute}}, func(r *trial) {
		r.good(100)
		r.over(40 * time.Minute)
	}, func(t *testing.T, r *trial, parked map[string]job.Reason) {
		for id := range parked {
			if r.gw.jobs[id].saved {
				delete(parked, id)
			}
		}
		exhausted(t, r, parked)
	})
}

// Refusals by the front of a gateway, while everything behind it is down, do not show that the gateway is back.
func TestRefusalsInAnOutageSpendNoAttempts(t *testing.T) {
	t.Parallel()
	for _, every := range []int{5, 20}[:testkit.Often(1, 2)] {
		t.Run(fmt.Sprint(every), func(t *testing.T) {
			t.Parallel()
			play(t, 1, 20, "", []trouble{{broken, time.Second, 10 * time.Minute}}, func(r *trial) {
				all := make([]fate, 1000)
				for i := range all {
					if all[i] = good; i%every == 0 {
						all[i] = "always 400"
					}
				}
				r.enqueue(all)
				r.over(40 * time.Minute)
			}, exhausted)
		})
	}
}

// The same with three processes, and at other rates.
func TestARealLimitOfAnyKindSpendsNoAttempts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		processes int
		limit     int64
		quota     int
	}{{1, 100, 10}, {3, 100, 10}, {1, 50, 5}, {1, 20, 2}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			t.Parallel()
			play(t, tc.processes, tc.limit, "", []trouble{{"a quota", 0, time.Hour}}, func(r *trial) {
				r.gw.quota = tc.quota
				r.good(400)
				r.over(10 * time.Minute)
			}, exhausted)
		})
	}
}

// Jobs that are always told to wait delay the good ones by a few holds at most.
func TestJobsThatAreAlwaysToldToWait(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fate  fate
		every int
	}{{limited, 5}, {busy, 20}, {limited, 20}, {busy, 5}}[:testkit.Often(2, 4)] {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			t.Parallel()
			play(t, 1, 50, "", nil, func(r *trial) {
				all := make([]fate, 1000)
				for i := range all {
					if all[i] = good; i%tc.every == 7%tc.every {
						all[i] = tc.fate
					}
				}
				r.enqueue(all)
				r.over(30 * time.Minute)
			}, func(t *testing.T, r *trial, parked map[string]job.Reason) {
				delete(parked, "")
				done, last := r.succeeded()
				t.Logf("%d calls, %d parked, %d good jobs done, the last after %s", len(r.gw.calls), len(parked), done, last)
				if last > 60*time.Second {
					t.Errorf("the last of %d good jobs after %s", done, last)
				}
			})
		})
	}
}

// A gateway that works between two requests to wait is held as briefly the second time as the first. When each such request within 30 s of the last one doubled the
// hold, 40 of 2,000 jobs that were told to wait once delayed the rest for 33 minutes.
func TestWaitsNowAndThenCostLittle(t *testing.T) {
	t.Parallel()
	play(t, 1, 100, "", nil, func(r *trial) {
		all := make([]fate, 2000)
		for i := range all {
			if all[i] = good; i%50 == 7 {
				all[i] = delayed
			}
		}
		r.enqueue(all)
		r.over(10 * time.Minute)
	}, func(t *testing.T, r *trial, parked map[string]job.Reason) {
		exhausted(t, r, parked)
		done, last := r.succeeded()
		t.Logf("%d calls, %d done, the last after %s", len(r.gw.calls), done, last)
		if done != 2000 || last > 90*time.Second {
			t.Errorf("%d of 2000 jobs done, the last after %s", done, last)
		}
	})
}

// A gateway whose limit is below ours, and that does not say how long to wait, is called at a good part of its own limit.
func TestARealLimitWithoutAWordIsUsed(t *testing.T) {
	t.Parallel()
	for quota, least := range map[int]int{50: 25, 10: 5} {
		t.Run(fmt.Sprint(quota), func(t *testing.T) {
			t.Parallel()
			play(t, 1, 100, "", []trouble{{"a quota, without Retry-After", 0, time.Hour}}, func(r *trial) {
				r.gw.quota = quota
				r.good(4000)
				r.till(2 * time.Minute)
			}, func(t *testing.T, r *trial, parked map[string]job.Reason) {
				exhausted(t, r, parked)
				done, _ := r.succeeded()
				t.Logf("%d calls, %d done in two minutes", len(r.gw.calls), done)
				if done < 120*least {
					t.Errorf("%d done in two minutes, want %d at least", done, 120*least)
				}
			})
		})
	}
}

// succeeded returns how many calls were answered 200, and the time of the last one.
func (r *trial) succeeded() (done int, last time.Duration) {
	for _, c := range r.gw.calls {
		if c.answer == "200" {
			done, last = done+1, c.at
		}
	}
	return done, last
}
