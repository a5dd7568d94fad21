package bucket

import (
	_ "embed" // the scripts are files
	"fmt"
	"slices"
	"strings"

	"spillway/internal/job"
)

// Algorithm is one way to keep the limits of admission. All algorithms decide in one script on one key, by
// Redis's clock. Either every limit has room for a job, or none is charged; a refusal changes nothing.
type Algorithm interface {
	// Lua returns the fragment that the ledger composes with its own scripts. It defines bucket_load, bucket_take,
	// bucket_retry, bucket_reset, bucket_remaining and bucket_save, all local: see algorithm.lua.
	Lua() string
	// Args returns what bucket_load reads: one text, the version of the limits. It has the algorithm's name and
	// the numbers of each limit. The algorithm must have passed Check. The caller must not change the result.
	Args() []any
	// MaxCost is the largest cost for which there can ever be room.
	MaxCost() int64
	// Check returns why the limits can't be kept in this way, or nil.
	Check() error
}

// MaxPrecision is how many parts a sliding window can have.
const MaxPrecision = 1000

// NewAlgorithm returns the algorithm of that name, or an error if it can't keep these limits. Only token-bucket
// and leaky-bucket use burst. Only sliding-window uses precision, the number of parts of a window.
func NewAlgorithm(name string, limits []job.Limit, burst, precision int64) (Algorithm, error) {
	a, err := newAlgorithm(name, limits, burst, precision)
	if err != nil {
		return nil, err
	}
	return prepared{a, a.Lua(), a.Args()}, nil
}

// prepared is an algorithm that has computed once what is used with every chunk of jobs.
type prepared struct {
	Algorithm
	lua  string
	args []any
}

func (p prepared) Lua() string { return p.lua }

func (p prepared) Args() []any { return p.args }

// makers has a function that makes each algorithm, by its name. The file of an algorithm adds it.
var makers = map[string]func(limits []job.Limit, burst, precision int64) Algorithm{}

func newAlgorithm(name string, limits []job.Limit, burst, precision int64) (Algorithm, error) {
	makes, ok := makers[name]
	if !ok {
		return nil, fmt.Errorf("%q is not an algorithm of admission: use one of %s", name, strings.Join(job.Algorithms(), ", "))
	}
	a := makes(limits, burst, precision)
	return a, a.Check()
}

//go:embed algorithm.lua
var algorithmLua string

// args returns the version of limits: the algorithm's name, then the numbers of each limit, such as "token-bucket 1/10/600/ 1/90/5400/ ".
func args(name string, rows [][]int64) []any {
	version := name + " "
	for _, row := range rows {
		for _, x := range row {
			version += fmt.Sprintf("%d/", x)
		}
		version += " "
	}
	return []any{version}
}

// checkLimits returns why limits can't be kept by any algorithm, or nil.
func checkLimits(limits []job.Limit) error {
	if len(limits) == 0 || len(limits) > MaxLimits {
		return fmt.Errorf("admission has %s: give 1 to %d, such as 100/s", count(len(limits)), MaxLimits)
	}
	for _, l := range limits {
		if err := check(l); err != nil {
			return err
		}
	}
	return nil
}

func count(limits int) string {
	if limits == 0 {
		return "no limit"
	}
	return fmt.Sprintf("%d limits", limits)
}

// checkBucket returns why limits can't be kept by a bucket of that burst, or nil.
func checkBucket(name string, limits []job.Limit, burst int64) error {
	if err := checkLimits(limits); err != nil {
		return err
	}
	if burst < 1 || burst > job.MaxCount {
		return fmt.Errorf("the burst of %d can't be kept: give a number from 1 to %d", burst, int64(job.MaxCount))
	}
	for _, l := range limits {
		if !job.Fills(name, l, burst) {
			return fmt.Errorf("the limit %s is too slow for a burst of %d: make the burst smaller", l, burst)
		}
	}
	return nil
}

func smallestN(limits []job.Limit) int64 {
	return slices.MinFunc(limits, func(a, b job.Limit) int { return int(a.N - b.N) }).N
}
