package sdk

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/client"
	"spillway/internal/cli"
	"spillway/internal/testkit"
)

// step is something that a person or a program does.
type step struct {
	Do     string       `json:"do"`
	Jobs   []client.Job `json:"jobs,omitempty"`
	IDs    []string     `json:"ids,omitempty"`
	Batch  string       `json:"batch,omitempty"`
	Limits []string     `json:"limits,omitempty"`
	By     string       `json:"by,omitempty"`
	Why    string       `json:"why,omitempty"`
	// Wait is what must be so before the next step.
	Wait func(client.GatewayStatus) bool `json:"-"`
	// Want is what comes back, as JSON.
	Want string `json:"-"`
}

// way is a way in.
type way interface{ do(step) any }

func charged(id, batch string, amount int, decline bool) client.Job {
	payload := map[string]any{"amount": amount, "currency": "EUR"}
	if decline {
		payload["decline"] = true
	}
	return client.Job{ID: id, Batch: batch, Payload: payload}
}

// story is what every way in does. by is who acts.
func story(by string) []step {
	refused := func(n int64) func(client.GatewayStatus) bool {
		return func(g client.GatewayStatus) bool { return g.Parked[client.Refused] == n && g.Queued+g.InFlight == 0 }
	}
	return []step{
		{Do: "enqueue", Jobs: []client.Job{charged("a-1", "november", 4900, false), charged("a-2", "november", 100, false), charged("bad", "november", 250, true), charged("with space", "november", 1, false)},
			Want: `{"enqueued":3,"invalid":1}`, Wait: refused(1)},
		{Do: "enqueue", Jobs: []client.Job{charged("a-1", "november", 4900, false), charged("a-2", "november", 7, false)}, Want: `{"duplicate":1,"invalid":1}`},
		{Do: "list", Want: `["bad refused"]`},
		{Do: "replay", IDs: []string{"bad"}, By: by, Why: "the card was updated", Want: `1`, Wait: func(g client.GatewayStatus) bool { return g.Outcomes.Kept >= 4 && refused(1)(g) }},
		{Do: "list", Want: `["bad refused"]`},
		{Do: "pause", By: by, Why: "the books are closed", Want: `"paused"`},
		{Do: "limit", Limits: []string{"50/s"}, By: by, Want: `["50/s"]`},
		{Do: "enqueue", Jobs: []client.Job{charged("b-1", "december", 10, false), charged("b-2", "december", 20, false)}, Want: `{"enqueued":2}`},
		{Do: "cancel", Batch: "december", By: by, Why: "the wrong file", Want: `[2]`},
		{Do: "resume", By: by, Want: `"resumed"`},
		{Do: "outcomes", Want: `["a-1 done - 4900 EUR","a-2 done - 100 EUR","b-1 parked cancelled 10 EUR","b-2 parked cancelled 20 EUR","bad parked refused 250 EUR","bad parked refused 250 EUR"]`},
	}
}

// One story through every way in: the answers are the same, and so are the books and the trail after.
func TestOneStoryThroughEveryWayIn(t *testing.T) {
	who, err := cli.WhoAmI()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"commands", "server", "go", "typescript", "python"}
	w := newWorld(t, names...)
	after := map[string]string{}
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			in := *w
			in.t = t
			way := in.way(name)
			for n, s := range story(who) {
				if got := alike(s.Do, way.do(s)); !same(t, got, s.Want) {
					t.Errorf("step %d, %s: %s, want %s", n+1, s.Do, text(t, got), s.Want)
				}
				if s.Wait != nil {
					in.awaits(name, s)
				}
			}
			if after[name] = in.books(name); after[name] != after[names[0]] {
				t.Errorf("the books after it are\n%s\nand through %s\n%s", after[name], names[0], after[names[0]])
			}
			if i == 0 {
				t.Log(after[name])
			}
		})
	}
}

// alike returns an answer in a form that every way in can give. Accepted jobs are counted, since the command line does not list them. Outcomes of jobs that were called at the same time are sorted.
func alike(do string, v any) any {
	all, is := v.([]any)
	switch {
	case is && do == "enqueue":
		count := map[string]int{}
		for _, one := range all {
			name := fmt.Sprint(one)
			if name == string(client.InvalidJob) || name == string(client.OtherPayload) { // enqueue calls both invalid
				name = "invalid"
			}
			count[name]++
		}
		return count
	case is && do == "outcomes":
		slices.SortFunc(all, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return v
}

func same(t *testing.T, got any, want string) bool {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(want), &v); err != nil {
		t.Fatal(err)
	}
	return text(t, got) == text(t, v)
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (w *world) way(name string) way {
	w.t.Helper()
	switch name {
	case "commands":
		return commands{w, name, ""}
	case "server":
		return commands{w, name, w.server}
	case "go":
		return goClient{w, name}
	case "typescript":
		return w.typescript(name)
	}
	return w.python(name)
}

func (w *world) awaits(gateway string, s step) {
	w.t.Helper()
	testkit.Eventually(w.t, time.Minute, s.Do+" to be through", func() bool {
		all, err := w.client.Status(context.Background())
		if err != nil {
			return false
		}
		for _, g := range all.Gateways {
			if g.Gateway == gateway {
				return s.Wait(g)
			}
		}
		return false
	})
}

// books returns what is known about a gateway after the story, without values that always differ.
func (w *world) books(gateway string) string {
	w.t.Helper()
	var all strings.Builder
	for _, args := range [][]string{{"batch", "november", "-g", gateway, "-o", "json"}, {"batch", "december", "-g", gateway, "-o", "json"}, {"dlq", "list", "-g", gateway, "-o", "json"},
		{"dlq", "history", "-g", gateway, "-o", "json"}, {"limit", "show", "-g", gateway, "-o", "json"}} {
		d := json.NewDecoder(strings.NewReader(w.print("dispatcher", args...)))
		for d.More() {
			var v any
			if err := d.Decode(&v); err != nil {
				w.t.Fatal(err)
			}
			via := `"via":"shared_token"` // whose name is what was typed
			if gateway == "commands" {
				via = `"via":"redis"`
			}
			fmt.Fprintf(&all, "%s %s\n", args[0], strings.NewReplacer(via, `"via":"ITS WAY"`, gateway, "G").Replace(text(w.t, steady(v))))
		}
	}
	return all.String()
}

// steady removes moments and what follows from them.
func steady(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, one := range v {
			if said, is := one.(string); is && len(said) > 19 {
				if _, err := time.Parse(time.RFC3339Nano, said); err == nil {
					one = "T"
				}
			}
			if v[name] = steady(one); name == "cursor" {
				delete(v, name)
			}
		}
	case []any:
		for i := range v {
			v[i] = steady(v[i])
		}
	}
	return v
}

// run runs a tool of the machine and returns its output.
func (w *world) run(dir, name string, args ...string) []byte {
	w.t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, &said
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, said.String())
	}
	return out
}

// typescript is a client with types by openapi-typescript, over openapi-fetch. Code that does not fit the types does not compile.
func (w *world) typescript(gateway string) way {
	w.t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			w.t.Skipf("there is no %s: make sdk runs it", tool)
		}
	}
	dir := w.t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "tsconfig.json", "story.ts"} {
		source, err := os.ReadFile(filepath.Join("typescript", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), source, 0o600)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	defer cancel()
	fetch := exec.CommandContext(ctx, "npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	fetch.Dir = dir
	if out, err := fetch.CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		w.t.Skipf("npm can't fetch the generator (%s): make sdk runs it", cmp.Or(first, err.Error()))
	}
	bin := filepath.Join(dir, "node_modules", ".bin")
	w.run(dir, filepath.Join(bin, "openapi-typescript"), w.document(), "-o", "api.d.ts")
	w.run(dir, filepath.Join(bin, "tsc"))
	cmd := exec.Command("node", filepath.Join("out", "story.js"), gateway)
	cmd.Dir = dir
	return w.tell(cmd)
}

// python is a client that test/sdk/python/generate.py makes, with nothing beyond Python itself.
func (w *world) python(gateway string) way {
	w.t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		w.t.Skip("there is no python3: make sdk runs it")
	}
	dir := w.t.TempDir()
	made := w.run("python", "python3", "generate.py", w.document())
	story, err := os.ReadFile(filepath.Join("python", "story.py"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "story.py"), story, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "spillway.py"), made, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return w.tell(exec.Command("python3", filepath.Join(dir, "story.py"), gateway))
}
