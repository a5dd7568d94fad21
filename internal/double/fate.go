package double

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
)

// Fate is a trouble of particular jobs. Job, Key or Share says which jobs: one of the three.
type Fate struct {
	// Name is one of FateNames.
	Name string
	// Job is the caller's own id: the payment's reference or, without one, its key. With a star at its end it is the beginning
	// of ids.
	Job string
	// Key is the beginning of keys.
	Key string
	// Share is the share of all jobs, 0 to 1. A hash of the job's id, the fate and Seed selects them: the same jobs each time.
	Share float64
	Seed  uint64
	// Calls is how many of a job's calls meet it. For a fate that comes before the execution all calls count, else only executed ones. 0 is 1; -1 is
	// all. Repeats of a key follow what its first call met.
	Calls int
	// Reason chooses one of the fate's answers, by its name or the end of its name. "" takes them in turn.
	Reason string
	// Charge says whether the payment is charged before the answer. Nil leaves it to the fate.
	Charge *bool
	// Save says what the key keeps: answer or nothing. "" leaves it to the fate.
	Save string
	// Delay is the length of a long execution. With Final it is when the payment reaches that state. 0 is 30 s, and with Final 72 h.
	Delay time.Duration
	// Life is how long the key lives. 0 is as long as the table says.
	Life time.Duration
	// Running chooses what repeats get while the first call runs. "" takes them in turn.
	Running string
	// Final is the state in which the payment ends. "" leaves it to the fate and the table. With an error that has charged nothing, paid
	// means that the payment is made later, although the answer was an error.
	Final string
}

// fateWords are the fields that ParseFate knows, as people write them.
var fateWords = []string{"job", "key", "share", "seed", "calls", "reason", "charge", "save", "delay", "life", "running", "final"}

// ParseFate reads FATE=WHAT: saved-500=share=5%,charge=true or 429=job=inv-00003,reason=global-rate,calls=3. WHAT is job=ID (job=old-* for
// all that begin so), key=PREFIX or share=5%, followed by the other fields of Fate: seed, calls (or all), reason, charge, save, delay, life, running, final.
func ParseFate(text string) (Fate, error) {
	name, what, _ := strings.Cut(text, "=")
	f := Fate{Name: name}
	if _, known := kinds[name]; !known {
		return Fate{}, f.check()
	}
	for _, part := range strings.Split(what, ",") {
		word, value, _ := strings.Cut(part, "=")
		if err := f.put(word, value); err != nil {
			return Fate{}, fmt.Errorf("%q in %q: %w", part, text, err)
		}
	}
	return f, f.check()
}

func (f *Fate) put(word, value string) (err error) {
	switch word {
	case "job":
		f.Job = value
	case "key":
		f.Key = value
	case "share":
		f.Share, err = parseShare(value)
	case "seed":
		f.Seed, err = strconv.ParseUint(value, 10, 64)
	case "calls":
		f.Calls, err = parseCalls(value)
	case "reason":
		f.Reason = value
	case "charge":
		var yes bool
		yes, err = strconv.ParseBool(value)
		f.Charge = &yes
	case "save":
		f.Save = value
	case "delay":
		f.Delay, err = parseTime(value)
	case "life":
		f.Life, err = parseTime(value)
	case "running":
		f.Running = value
	case "final":
		f.Final = value
	default:
		err = fmt.Errorf("write %s%s", strings.Join(fateWords, ", "), job.DidYouMean(word, "", fateWords))
	}
	return err
}

func parseCalls(text string) (int, error) {
	if text == "all" {
		return -1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a number of calls: write 1, 2, … or all", text)
	}
	return n, nil
}

func parseTime(text string) (time.Duration, error) {
	d, rule := job.ReadDuration(text)
	if rule != "" {
		return 0, fmt.Errorf("%q %s", text, rule)
	}
	return d, nil
}

func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(number, 64)
	if percent {
		share /= 100
	}
	if err != nil || !(share > 0 && share <= 1) {
		return 0, fmt.Errorf("%q is not a share of jobs: write it like 5%% or 0.05", text)
	}
	return share, nil
}

// check returns what is wrong with the fate at any gateway.
func (f Fate) check() error {
	if _, known := kinds[f.Name]; !known {
		return fmt.Errorf("there is no fate %q%s; there are %s", f.Name, job.DidYouMean(f.Name, "", FateNames()), strings.Join(FateNames(), ", "))
	}
	given := 0
	for _, is := range []bool{f.Job != "", f.Key != "", f.Share != 0} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return fmt.Errorf("the fate %s is of one job, of some keys or of a share of all: write job=inv-00003, key=inv- or share=5%%", f.Name)
	case f.Share < 0 || f.Share > 1 || f.Delay < 0 || f.Life < 0 || f.Calls < -1:
		return fmt.Errorf("the fate %s: a share is between 0 and 1, times and calls are not negative", f.Name)
	case f.Save != "" && f.Save != "answer" && f.Save != "nothing":
		return fmt.Errorf("the fate %s: save=%s: write answer or nothing", f.Name, f.Save)
	}
	return nil
}

// fits reports whether the job of a call has the fate.
func (f Fate) fits(c *call) bool {
	switch start, many := strings.CutSuffix(f.Job, "*"); {
	case f.Key != "":
		return strings.HasPrefix(c.key, f.Key)
	case many:
		return strings.HasPrefix(c.job, start)
	case f.Job != "":
		return c.job == f.Job || generation.ReplaceAllString(c.key, "") == f.Job
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %s", f.Seed, f.Name, c.job)
	return float64(stirred(h.Sum64()))/math.MaxUint64 < f.Share
}

// stirred spreads a hash over all of its bits: FNV's upper ones hardly differ between ids that differ at their end.
func stirred(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// armedFate is a fate in force.
type armedFate struct {
	Fate
	plan Plan
	met  map[string]int // calls, by job
}

// Arm puts fates into force, after those that are in force already. If several fit a call, the first one that is not used up counts. A fate that the gateway's
// documents exclude is refused, and then none is armed.
func (d *Double) Arm(fates ...Fate) error {
	var armed []*armedFate
	for _, f := range fates {
		if err := d.table.checkFate(f); err != nil {
			return err
		}
		armed = append(armed, &armedFate{Fate: f, plan: d.table.plan(f.Name), met: map[string]int{}})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = append(d.armed, armed...)
	return nil
}

// Disarm removes all fates. What calls have already met stays.
func (d *Double) Disarm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = nil
}

func (t *Table) checkFate(f Fate) error {
	if err := f.check(); err != nil {
		return err
	}
	if !t.has(f.Name) {
		why := t.Without[f.Name]
		if why == "" {
			why = "its documents say nothing of the kind"
		}
		return fmt.Errorf("%s has no fate %s (%s): %s; it has %s", t.Gateway, f.Name, kinds[f.Name].says, why, strings.Join(t.FateNames(), ", "))
	}
	p := t.plan(f.Name)
	if f.Charge != nil && len(p.First) == 0 {
		return fmt.Errorf("the fate %s: charge is for answers that leave it open: cut-before-charge has not charged, and cut-after-charge has", f.Name)
	}
	if of := slices.Concat(p.Gate, p.First); f.Reason != "" && find(of, f.Reason) == "" {
		return fmt.Errorf("the fate %s of %s has no reason %q%s; it has %s", f.Name, t.Gateway, f.Reason, job.DidYouMean(f.Reason, "", of), strings.Join(of, ", "))
	}
	if f.Running != "" && !slices.Contains(t.running(), f.Running) {
		return fmt.Errorf("while a call runs, %s has no answer %q; it has %s", t.Gateway, f.Running, strings.Join(t.running(), ", "))
	}
	if _, isState := t.Words[f.Final]; f.Final != "" && !isState {
		return fmt.Errorf("a payment of %s can't end as %q; it can be %s", t.Gateway, f.Final, strings.Join(t.states(), ", "))
	}
	return nil
}

// find returns the name for a reason: the name itself, or one that ends in the reason.
func find(of names, reason string) string {
	for _, name := range of {
		if name == reason || strings.HasSuffix(name, "-"+reason) {
			return name
		}
	}
	return ""
}
