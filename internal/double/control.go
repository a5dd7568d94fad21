package double

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// control serves what no gateway has: the ledger, the log of calls, the tokens and the fates.
func (d *Double) control(w http.ResponseWriter, r *http.Request, what string) {
	switch r.Method + " " + what {
	case "GET ledger":
		writeLines(w, d.Ledger())
	case "GET calls":
		writeLines(w, d.Calls())
	case "GET lookups":
		writeLines(w, slices.DeleteFunc(d.Calls(), func(c Call) bool { return c.Look == "" }))
	case "GET tokens":
		writeLines(w, []TokenStats{d.Tokens()})
	case "DELETE tokens":
		d.RevokeTokens()
		w.WriteHeader(http.StatusNoContent)
	case "GET fates":
		writeLines(w, d.armedNow())
	case "POST fates":
		fates, err := readFates(json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)))
		if err == nil {
			err = d.Arm(fates...)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		writeLines(w, d.armedNow())
	case "DELETE fates":
		d.Disarm()
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "there are GET /_double/ledger, GET /_double/calls, GET /_double/lookups, GET and DELETE /_double/tokens, and GET, POST and DELETE /_double/fates", http.StatusNotFound)
	}
}

func writeLines[T any](w http.ResponseWriter, all []T) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	for _, one := range all {
		if enc.Encode(one) != nil {
			return // the reader has gone
		}
	}
}

// ArmedFate is a fate in force, as GET /_double/fates shows it.
type ArmedFate struct {
	Fate  string  `json:"fate"`
	Job   string  `json:"job,omitempty"`
	Key   string  `json:"key,omitempty"`
	Share float64 `json:"share,omitempty"`
	// Jobs and Calls have met it.
	Jobs  int `json:"jobs"`
	Calls int `json:"calls"`
}

func (d *Double) armedNow() []ArmedFate {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []ArmedFate{}
	for _, f := range d.armed {
		one := ArmedFate{Fate: f.Name, Job: f.Job, Key: f.Key, Share: f.Share, Jobs: len(f.met)}
		for _, n := range f.met {
			one.Calls += n
		}
		all = append(all, one)
	}
	return all
}

// readFates reads one fate or a list: {"fate":"saved-500","share":"5%","charge":true}.
func readFates(from *json.Decoder) ([]Fate, error) {
	from.UseNumber()
	var v any
	if err := from.Decode(&v); err != nil {
		return nil, fmt.Errorf(`no JSON: %w; write {"fate":"saved-500","share":"5%%"} or a list of them`, err)
	}
	list, many := v.([]any)
	if !many {
		list = []any{v}
	}
	var fates []Fate
	for _, one := range list {
		words, ok := one.(map[string]any)
		if !ok {
			return nil, fmt.Errorf(`%v is not a fate: write {"fate":"saved-500","share":"5%%"}`, one)
		}
		f := Fate{Name: fmt.Sprint(words["fate"])}
		for word, value := range words {
			if word == "fate" {
				continue
			}
			if err := f.put(word, fmt.Sprint(value)); err != nil {
				return nil, fmt.Errorf("%s: %w", word, err)
			}
		}
		fates = append(fates, f)
	}
	return fates, nil
}
