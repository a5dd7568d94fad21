package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
	"spillway/internal/roles"
)

// newSeconds is a house in which a second person has to approve replays of more than one job, discards, and lifts of brakes, at both gateways.
func newSeconds(t *testing.T) *house {
	t.Helper()
	return houseWith(t, func(_ *rig, text string) string {
		text = strings.ReplaceAll(text, "    leak:", "    approval: {replay_over: 1, discard: always, brake_lift: always}\n    leak:")
		return strings.Replace(text, "    replay: manual\n", "    replay: manual\n    brakes: [{limit: EUR 10/10m}]\n", 1)
	})
}

// somebody has a token, or logs in at the provider with these claims.
type somebody struct {
	token  string
	claims map[string]any
}

// ways are the ways in which somebody can approve a request. Each returns whether it was approved, and the text of the answer.
func (h *house) ways() map[string]func(who somebody, id, more string) (done bool, told string) {
	shown := func(who somebody) string {
		if who.claims != nil {
			return h.issuer.Token(who.claims)
		}
		return who.token
	}
	return map[string]func(somebody, string, string) (bool, string){
		"API": func(who somebody, id, gateway string) (bool, string) {
			body := `{"by":"somebody","why":"looked at it"}`
			if gateway != "" {
				body = `{"by":"somebody","why":"looked at it","gateways":["` + gateway + `"]}`
			}
			got := h.program(shown(who), http.MethodPost, "/v1/approvals/"+id+"/approve", body)
			return got.code == http.StatusOK, got.body
		},
		"console": func(who somebody, id, gateway string) (bool, string) {
			if gateway != "" { // it has no such field
				return false, "there is no request"
			}
			var b *http.Client
			if who.claims != nil {
				var back answer
				if b, back = h.atProvider(who.claims); back.code != http.StatusOK {
					return false, back.body
				}
			} else if b = h.visitor(who.token); b == nil {
				return false, "no_token"
			}
			got := h.form(b, "/approvals", url.Values{"request": {id}, "do": {"approve"}, "why": {"looked at it"}, "who": {"me"}})
			return got.code == http.StatusSeeOther, got.body
		},
		"--server": func(who somebody, id, gateway string) (bool, string) {
			args := []string{"approval", "approve", id, "--why", "looked at it", "--yes"}
			if gateway != "" {
				args = append(args, "-g", gateway)
			}
			got := h.afar(shown(who), args...)
			return got.code == 0, got.err
		},
	}
}

// discard requests the discard of a job of gateway two, as an operator through the API. It returns the id of the request.
func (h *house) discard(id string) string {
	h.t.Helper()
	token, of := tokenOf(roles.Operator), `"gateways":["`+h.two+`"],"ids":["`+id+`"],"action":"discard"`
	var seen remote.Preview
	got := h.program(token, http.MethodPost, "/v1/dead-letters/preview", "{"+of+"}")
	h.must(json.Unmarshal([]byte(got.body), &seen))
	got = h.program(token, http.MethodPost, "/v1/dead-letters/run", `{"by":"me","why":"not ours","token":"`+seen.Token+`",`+of+"}")
	var v remote.Cleared
	h.must(json.Unmarshal([]byte(got.body), &v))
	if len(v.Parts) != 1 || v.Parts[0].Request == nil || v.Taken != 0 || v.Parts[0].Problem == nil || h.record(h.two, id).State != job.Parked {
		h.t.Fatalf("asked for the discard of %s: %d %s", id, got.code, got.body)
	}
	return v.Parts[0].Request.ID
}

// Only another person with the right role can approve an act, once, and only if it has not changed since it was shown. The API, the console and
// --server behave the same. The test is not parallel, because the token of --server is in the environment.
func TestWhoMayApproveAnAct(t *testing.T) {
	h := newSeconds(t)
	for _, id := range []string{"x", "x-API", "x-console", "x---server", "y"} {
		h.park(h.two, job.Job{ID: id, Payload: []byte(`{"n":1}`)}, job.Refused, 402, "HTTP 402")
	}
	h.park(h.one, charge("z", "100", ""), job.Refused, 402, "HTTP 402")
	request, changed := h.discard("x"), h.discard("y")
	h.must(h.c.HSet(h.ctx, redisdb.NewKeys(h.two).Job("y"), record.Short("edited_at"), time.Now().UnixMicro()).Err())
	login := func(name, group string, more ...any) somebody {
		claims := map[string]any{"groups": []string{group}, "email": name + "@example.com"}
		if len(more) > 0 {
			claims["exp"] = more[0]
		}
		return somebody{claims: claims}
	}
	token := func(text string) somebody { return somebody{token: text} }
	const self, foreign = "nobody may approve their own request", "there is no request"
	for way, decide := range h.ways() {
		for _, c := range []struct {
			what    string
			who     somebody
			gateway string
			says    []string
		}{
			{"who asked", token(tokenOf(roles.Operator)), "", []string{"this needs the role approver"}},
			{"another token of who asked", token(ownToken), "", []string{self}},
			{"a token whose person asked", token(personToken), "", []string{self}},
			{"the login of who asked", login("Operator-1", "approver"), "", []string{self}},
			{"a viewer", token(tokenOf(roles.Viewer)), "", []string{"this needs the role approver"}},
			{"a producer", token(tokenOf(roles.Producer)), "", []string{"this needs the role"}},
			{"a login without the role", login("zoe", "viewer"), "", []string{"this needs the role approver"}},
			{"no token that there is", token("canary-none"), "", []string{"no_token", "asks for its token"}},
			{"a token that has ended", token(endedToken), "", []string{"no_token", "asks for its token"}},
			{"a login that has ended", login("zoe", "approver", time.Now().Add(-time.Hour).Unix()), "", []string{"no_token", "asks for its token", "has ended", "expired"}},
			{"an approver of another gateway", token(scopedTo(roles.Approver)), "", []string{foreign}},
			{"at another gateway", token(tokenOf(roles.Approver)), h.one, []string{foreign}},
		} {
			done, told := decide(c.who, request, c.gateway)
			says := false
			for _, text := range c.says {
				says = says || strings.Contains(told, text)
			}
			if done || !says || h.record(h.two, "x").State != job.Parked {
				t.Errorf("%s, %s: approved %t, %.300s", way, c.what, done, told)
			}
		}
		if done, told := decide(token(tokenOf(roles.Approver)), changed, ""); done || !strings.Contains(told, "has changed since it was shown") {
			t.Errorf("%s, changed: approved %t, %.300s", way, done, told)
		}
		if done, told := decide(token(tokenOf(roles.Approver)), "nobody", ""); done || !strings.Contains(told, foreign) {
			t.Errorf("%s, none: approved %t, %.300s", way, done, told)
		}
		own := h.discard("x-" + way)
		if done, told := decide(token(tokenOf(roles.Approver)), own, ""); !done || h.record(h.two, "x-"+way).State != job.Discarded {
			t.Errorf("%s, by who may: approved %t, %.300s", way, done, told)
		}
		if done, told := decide(login("zoe", "approver"), own, ""); done || !strings.Contains(told, "approver-1 has approved it") {
			t.Errorf("%s, twice: approved %t, %.300s", way, done, told)
		}
	}
	if got := h.command("approval", "approve", request, "--why", "x", "--yes"); got.code != 2 || !strings.Contains(got.err, "you are not identified") {
		t.Errorf("with Redis's password: %+v", got)
	}
	if got := h.command("dlq", "discard", "-g", h.two, "--id", "x", "--why", "mine", "--yes"); got.code != 3 || !strings.Contains(got.err, "awaits the approval of a second person") || h.record(h.two, "x").State != job.Parked {
		t.Errorf("a discard with Redis's password: %+v", got)
	}
	if trail := h.c.LRange(h.ctx, redisdb.NewKeys(h.two).Trail(), 0, -1).Val(); !strings.Contains(strings.Join(trail, "\n"), `"who":"approver-1","said":"somebody","via":"token","what":"discard","why":"looked at it","asked_by":"operator-1 (token)","request":"`) {
		t.Errorf("the trail has %v", trail)
	}
}

// The API, the console and --server make a request for an act that needs a second person, and say so. They do an act that needs none.
func TestEachDoorAsksForASecondPerson(t *testing.T) {
	h := newSeconds(t)
	for _, id := range []string{"a", "b", "c"} {
		h.park(h.one, charge(id, "100", ""), job.Refused, 402, "HTTP 402")
	}
	operator := tokenOf(roles.Operator)
	if got := h.afar(operator, "dlq", "replay", "-g", h.one, "--id", "a", "--yes"); got.code != 0 || h.record(h.one, "a").State != job.Queued {
		t.Errorf("a replay of one job: %+v", got)
	}
	got := h.afar(operator, "dlq", "replay", "-g", h.one, "--reason", "refused", "--dry-run", "-o", "json")
	if got.code != 0 || !strings.Contains(got.out, `"needs_approval":["`+h.one+`"]`) {
		t.Errorf("a dry run of two: %+v", got)
	}
	if got := h.afar(operator, "dlq", "replay", "-g", h.one, "--reason", "refused", "--dry-run"); !strings.Contains(got.out+got.err, h.one+": a second person has to approve this replay; it is requested, not done") {
		t.Errorf("a dry run of two, as text: %+v", got)
	}
	if got := h.command("dlq", "replay", "-g", h.one, "--id", "b", "--dry-run"); got.code != 0 || strings.Contains(got.out+got.err, "approv") {
		t.Errorf("a dry run of one: %+v", got)
	}
	if page := h.ask(h.browser(operator), "", http.MethodGet, "/gateways/"+h.one+"/clear?do=discard&id=b", "", ""); !strings.Contains(page.body, "A second person has to approve this: it is requested, not done.") {
		t.Errorf("the console's preview of a discard: %s", page.body)
	}
	got = h.afar(operator, "dlq", "replay", "-g", h.one, "--reason", "refused", "--yes", "-o", "json")
	var replay struct {
		Replayed int
		Requests []struct{ ID, What, Via string }
	}
	h.must(json.Unmarshal([]byte(got.out), &replay))
	if got.code != 3 || replay.Replayed != 0 || len(replay.Requests) != 1 || replay.Requests[0].What != "replay" || !strings.Contains(got.err, "replay of 2 jobs (EUR 2.00) at "+h.one+" awaits the approval of a second person: request ") {
		t.Errorf("a replay of two: %+v", got)
	}
	page := h.form(h.browser(operator), "/gateways/"+h.one+"/clear", url.Values{"do": {"discard"}, "id": {"b"}, "until": {time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}, "why": {"x"}, "who": {"me"}})
	_, id, _ := strings.Cut(page.header.Get("Location"), "/approvals?request=")
	if page.code != http.StatusSeeOther || id == "" || h.record(h.one, "b").State != job.Parked {
		t.Fatalf("a discard at the console: %d %v", page.code, page.header)
	}
	seen := h.ask(h.browser(tokenOf(roles.Approver)), "", http.MethodGet, "/approvals?request="+id, "", "")
	if !strings.Contains(seen.body, "discard of 1 job (EUR 1.00) at "+h.one) || !strings.Contains(seen.body, "operator-1 (token)") || strings.Count(seen.body, `value="approve"`) != 2 {
		t.Errorf("the approver's page: %s", seen.body)
	}
	if viewed := h.ask(h.browser(operator), "", http.MethodGet, "/approvals", "", ""); viewed.code != http.StatusOK || strings.Contains(viewed.body, `value="approve"`) {
		t.Errorf("the operator's page: %s", viewed.body)
	}
	lift := h.afar(operator, "brake", "lift", "-g", h.one, "--for", "2h", "--why", "month's end")
	if lift.code != 3 || !strings.Contains(lift.err, "brake lift 2h at "+h.one+" awaits the approval of a second person") || strings.Contains(lift.out, "lifted until") {
		t.Errorf("a lift: %+v", lift)
	}
	list := h.afar(tokenOf(roles.Viewer), "approval", "list")
	if list.code != 0 || strings.Count(list.out, "operator-1 (token)") != 3 || !strings.Contains(list.out, "brake lift 2h") {
		t.Errorf("the list: %+v", list)
	}
	if all := h.afar(scopedTo(roles.Viewer), "approval", "list", "-o", "json"); all.code != 0 || strings.Count(all.out, `"state":"asked"`) != 3 {
		t.Errorf("for gateway one alone: %+v", all)
	}
	if got := h.afar(tokenOf(roles.Approver), "approval", "approve", replay.Requests[0].ID, "--why", "x", "--dry-run"); got.code != 0 || h.record(h.one, "c").State != job.Parked || !strings.Contains(got.err, "operator-1 (token) asked for it") {
		t.Errorf("only shown: %+v", got)
	}
	if got := h.afar(tokenOf(roles.Approver), "approval", "approve", replay.Requests[0].ID, "--why", "x", "--yes"); got.code != 0 || h.record(h.one, "b").State != job.Queued || h.record(h.one, "c").State != job.Queued ||
		!strings.Contains(got.out, "done for 2 jobs") {
		t.Errorf("approved: %+v", got)
	}
	if got := h.form(h.browser(tokenOf(roles.Approver)), "/approvals", url.Values{"request": {id}, "do": {"reject"}, "why": {"x"}, "who": {"me"}}); got.code != http.StatusSeeOther {
		t.Errorf("rejected: %d %s", got.code, got.body)
	}
	if list := h.afar(tokenOf(roles.Viewer), "approval", "list"); strings.Count(list.out, "operator-1 (token)") != 1 {
		t.Errorf("afterwards: %+v", list)
	}
}
