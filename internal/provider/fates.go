package provider

import (
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Fate is the answer that particular jobs always get. If several fates fit a job, the first one counts.
type Fate struct {
	// ID is the job's id without a generation, or with a star at its end the beginning of ids.
	ID string
	// Share is the share of all jobs, 0 to 1, if there is no ID. A hash of the job's id and the status selects the jobs: the same
	// ones in every process, and others for another status.
	Share float64
	// Status is that of the answer. 0: there is no answer, and the call hangs.
	Status int
	// RetryAfter goes with the answer, in whole seconds rounded up. 0 = no header.
	RetryAfter time.Duration
	// Charge charges each new key nevertheless.
	Charge bool
}

// Fits reports whether a job has this fate.
func (f Fate) Fits(id string) bool {
	if start, many := strings.CutSuffix(f.ID, "*"); many {
		return strings.HasPrefix(id, start)
	}
	if f.ID != "" {
		return id == f.ID
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", f.Status, id)
	return float64(stirred(h.Sum64()))/math.MaxUint64 < f.Share
}

// stirred spreads a hash over all of its bits: FNV's upper ones hardly differ between ids that differ at their end.
func stirred(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// String writes the fate as ParseFate reads it.
func (f Fate) String() string {
	text := "id=" + f.ID
	if f.ID == "" {
		text = fmt.Sprintf("share=%g%%", 100*f.Share)
	}
	if f.Status == 0 {
		text += ",hang"
	} else {
		text += ",status=" + strconv.Itoa(f.Status)
	}
	if f.RetryAfter > 0 {
		text += ",retry_after=" + f.RetryAfter.String()
	}
	if f.Charge != charges(f.Status) {
		text += fmt.Sprintf(",charge=%v", f.Charge)
	}
	return text
}

// charges reports whether an answer usually follows a charge: a success, a redirection to what was created, and an
// answer that never comes.
func charges(status int) bool { return status < http.StatusBadRequest }

// works reports whether the answer comes from the execution of the call, and not from a check before it: rights, rates, proxies.
func (f Fate) works() bool {
	return f.Charge || f.Status < http.StatusBadRequest || f.Status == http.StatusPaymentRequired || f.Status == http.StatusInternalServerError
}

// Incident is trouble of the whole gateway.
type Incident struct {
	// Status is that of the answers, 400 to 599. 0 = there is no incident.
	Status int
	// RetryAfter goes with them, in whole seconds rounded up. 0 = no header.
	RetryAfter time.Duration
	// Share is the share of all calls, 0 to 1, that meet it. 0 = all.
	Share float64
}

// share is Share without its short form.
func (i Incident) share() float64 {
	if i.Share == 0 {
		return 1
	}
	return i.Share
}

// String writes the incident as ParseIncident reads it; "" if there is none.
func (i Incident) String() string {
	if i.Status == 0 {
		return ""
	}
	text := fmt.Sprintf("status=%d", i.Status)
	if i.RetryAfter > 0 {
		text += ",retry_after=" + i.RetryAfter.String()
	}
	return fmt.Sprintf("%s,share=%g%%", text, 100*i.share())
}
