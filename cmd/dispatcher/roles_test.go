package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"spillway/internal/remote"
	"spillway/internal/roles"
)

// needsOf returns the need of each operation and path of the API. Those in the table are taken from there, the others from the description, which
// another test compares with the routes.
func (h *house) needsOf(t *testing.T) map[string]roles.Need {
	t.Helper()
	all := map[string]roles.Need{}
	for path, item := range h.doc.Paths.Map() {
		for method, op := range item.Operations() {
			i := slices.IndexFunc(roles.Needs(), func(n roles.Need) bool { return n.String() == op.Extensions["x-role"] })
			if i < 0 {
				t.Errorf("%s %s: no need is called %v", method, path, op.Extensions["x-role"])
				continue
			}
			all[method+" "+path] = roles.Needs()[i]
		}
	}
	for _, o := range remote.Table() {
		about := o.Described()
		all[about.Method+" "+about.Path] = about.Need
	}
	return all
}

func (h *house) filled(path string) string {
	return strings.NewReplacer("{gateway}", h.one, "{name}", "b1", "{id...}", "a", "{id}", "a", "{$}", "").Replace(path)
}

// Each role calls each path of the API. It is let in, or told which role is needed.
func TestEachRoleAtEachPath(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.stock()
	needs, cells := h.needsOf(t), 0
	members := map[roles.Role]string{}
	for _, role := range roles.All() {
		members[role] = h.member(string(role))
	}
	for _, what := range slices.Sorted(maps.Keys(needs)) {
		need := needs[what]
		if need == roles.Undeclared {
			t.Errorf("%s does not say which role it needs", what)
		}
		method, path, _ := strings.Cut(what, " ")
		for _, role := range roles.All() {
			for _, shown := range []string{tokenOf(role), members[role]} {
				cells++
				got := h.program(shown, method, h.filled(path), "{}")
				var p struct {
					Code, Role string
					Needs      string `json:"needs_role"`
				}
				may := need == roles.Nothing || slices.Contains(need.Roles(), role)
				if may == mayNot(got) || got.code == http.StatusUnauthorized || got.code >= 500 && got.code != http.StatusServiceUnavailable {
					t.Errorf("%s by %s: %d %s, needs %s", what, role, got.code, got.body, need)
				}
				if !may && (json.Unmarshal([]byte(got.body), &p) != nil || p.Code != "forbidden" || p.Role != string(role) || p.Needs != need.String()) {
					t.Errorf("%s by %s: %s, needs %s", what, role, got.body, need)
				}
			}
		}
		if got := h.program("canary-nobody", method, h.filled(path), "{}"); need != roles.Nothing && got.code != http.StatusUnauthorized && got.code != http.StatusTooManyRequests {
			t.Errorf("%s by nobody: %d", what, got.code)
		}
	}
	if cells < 80*len(roles.All()) {
		t.Errorf("%d cells", cells)
	}
	if strings.Contains(h.log.String(), "canary") {
		t.Error("the log has a token")
	}
}

// dearer are requests that need a higher role than their operations.
var dearer = map[string]string{
	"findJob": "/v1/jobs/a?payload=true", "listDeadLetters": "/v1/dead-letters?payload=true", "getDeadLetter": "/v1/dead-letters/job/a?payload=true",
	"searchJobs": `{"fields":{"payload.amount":"1"}}`, "exportJobs": "/v1/jobs?field=payload.amount", "exportBatch": "/v1/batches/b1/jobs?field=payload.amount", "audit": `{"repair":true}`,
	"exportDeadLetters": "/v1/dead-letters/export",
}

// Requests that show payloads, or repair something, are for operators, whatever role the operation needs otherwise.
func TestEachRoleAtWhatNeedsMore(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.stock()
	for _, o := range remote.Table() {
		about := o.Described()
		if _, is := o.Request().(interface{ NeedsToo() roles.Need }); !is {
			continue
		}
		how, known := dearer[about.Name]
		if !known {
			t.Errorf("%s may need more, and no request of it is tested", about.Name)
			continue
		}
		path, body := how, ""
		if about.Method == http.MethodPost {
			path, body = about.Path, how
		}
		for _, role := range roles.All() {
			got := h.program(tokenOf(role), about.Method, path, body)
			if may := slices.Contains(roles.Operate.Roles(), role); may == mayNot(got) || may && got.code != http.StatusOK {
				t.Errorf("%s by %s: %d %s", how, role, got.code, got.body)
			}
		}
	}
	if log := h.log.String(); !strings.Contains(log, "payloads") || !strings.Contains(log, "who=operator-1") {
		t.Error("the log does not say who saw payloads")
	}
}

// Each role visits each page and form of the console. A role that may not act sees no buttons for acts.
func TestEachRoleAtEachPage(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.stock()
	pages := h.page.Pages()
	if len(pages) < 20 {
		t.Fatalf("%d pages", len(pages))
	}
	for _, p := range pages {
		if p.Need == roles.Undeclared {
			t.Errorf("%s does not say which role it needs", p.Pattern)
		}
	}
	for i := range 2 * len(roles.All()) {
		role := roles.All()[i/2]
		b := h.memberAt(string(role))
		if i%2 == 0 {
			b = h.browser(tokenOf(role))
		}
		visit := func(method, path string, fields url.Values, need roles.Need) answer {
			var got answer
			if method == http.MethodPost {
				got = h.form(b, path, fields)
			} else {
				got = h.ask(b, "", method, path, "", "")
			}
			if may := slices.Contains(need.Roles(), role); may == mayNot(got) || got.code == http.StatusUnauthorized || got.code >= 500 {
				t.Errorf("%s %s by %s: %d, needs %s", method, path, role, got.code, need)
			}
			return got
		}
		for _, p := range pages {
			method, path, _ := strings.Cut(p.Pattern, " ")
			if path == "/logout" {
				continue
			}
			if path == "/" { // all that is not a page
				path = "/nowhere"
			}
			got := visit(method, h.filled(path), url.Values{"id": {"a"}, "do": {"none"}}, p.Need)
			if !slices.Contains(roles.Operate.Roles(), role) {
				for _, button := range []string{"/pause\"", "/resume\"", "/limit\"", "do=replay", "do=discard", "do=pause", "/park?", "payload\" value=\"1"} {
					if strings.Contains(got.body, button) {
						t.Errorf("%s by %s draws %s", p.Pattern, role, button)
					}
				}
			} else if p.Pattern == "GET /gateways/{gateway}" && (!strings.Contains(got.body, "/pause\"") || !strings.Contains(got.body, "do=replay")) {
				t.Errorf("%s draws no buttons for %s", p.Pattern, role)
			}
		}
		visit(http.MethodGet, "/gateways/"+h.one+"?payload=1", nil, roles.Operate)
		visit(http.MethodGet, "/jobs/a?payload=1&gateway="+h.one, nil, roles.Operate)
		visit(http.MethodPost, "/search", url.Values{"field": {"payload.amount"}, "value": {"1"}}, roles.Operate)
		visit(http.MethodGet, "/batches?name=b1&do=pause", nil, roles.Operate)
		visit(http.MethodGet, "/jobs?id=a*", nil, roles.View)
		visit(http.MethodGet, "/queues/", nil, roles.View)
		if got := h.form(b, "/logout", nil); got.code != http.StatusSeeOther {
			t.Errorf("%s logs out: %d", role, got.code)
		}
	}
}

// asked are the arguments for each command that works with --server.
var asked = map[string]string{
	"status": "", "calls": "", "answers": "", "processes": "", "doctor": "", "find": "a*", "gateway list": "", "gateway rename": "none ONE --why x", "gateway forget": "none --why x", "audit": "", "trail verify": "", "trail export": "",
	"job": "a", "park": "b --why x --dry-run", "forget": "--batch b1 --why x --dry-run", "export": "", "batch list": "", "batch": "b1", "batch pause": "b1 --why x --dry-run", "batch resume": "b1 --why x --dry-run",
	"batch cancel": "b1 --why x --dry-run", "batch approve": "b1 --why x --dry-run", "batch reject": "b1 --why x --dry-run", "approval list": "", "approval approve": "x --why x --yes", "approval reject": "x --why x --yes", "dlq list": "", "dlq show": "a", "dlq stats": "", "dlq export": "", "dlq replay": "--id a --dry-run", "dlq discard": "--id a --why x --dry-run",
	"dlq resolve": "--id d --done --why x --dry-run", "dlq history": "", "outcomes": "-g ONE", "pause": "-g ONE --why x", "resume": "-g ONE", "limit show": "", "limit set": "-g ONE 50/s",
	"lane list": "-g ONE", "lane show": "l -g ONE", "lane set": "l -g ONE --limits 5/s", "lane reset": "l -g ONE", "lane pause": "l -g ONE --why x", "lane resume": "l -g ONE", "route pause": "r -g ONE --why x",
	"route resume": "r -g ONE", "limit reset": "-g ONE", "limit forgive": "-g ONE --why x", "brake show": "-g ONE", "brake lift": "-g ONE --for 1h --why x",
}

// Each role runs each command with --server. The command is done, or says which role it needs. The test is not parallel: the token is in the
// environment.
func TestEachRoleAtEachCommand(t *testing.T) {
	h := newHouse(t)
	h.stock()
	needs := map[string][]roles.Need{}
	for _, o := range remote.Table() {
		about := o.Described()
		for _, c := range about.Commands {
			if about.Name != remote.AckOutcomes.Name { // that is for --ack
				needs[c] = append(needs[c], about.Need)
			}
		}
	}
	for _, command := range slices.Sorted(maps.Keys(needs)) {
		how, known := asked[command]
		if command == "top" { // it needs a terminal: its path is tested at the API
			continue
		}
		if !known {
			t.Errorf("%s is not tested", command)
			continue
		}
		for _, role := range roles.All() {
			may := !slices.ContainsFunc(needs[command], func(n roles.Need) bool { return !slices.Contains(n.Roles(), role) })
			got := h.afar(tokenOf(role), append(strings.Fields(command), strings.Fields(strings.ReplaceAll(how, "ONE", h.one))...)...)
			refused := strings.Contains(got.err, "this needs the role")
			if may == refused || refused && (got.code != 2 || !strings.Contains(got.err, "has the role "+string(role))) {
				t.Errorf("%s by %s: exit code %d, %s", command, role, got.code, fmt.Sprint(got.out, got.err))
			}
		}
	}
}
