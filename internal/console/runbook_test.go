package console

import (
	"strings"
	"testing"

	"spillway/internal/desk"
	"spillway/internal/job"
)

// Each section that a page, status or an alert links to is in the runbook of the console.
func TestEachStateHasItsSectionOfTheRunbook(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	status, page := r.get("/runbook")
	if status != 200 {
		t.Fatalf("status %d", status)
	}
	linked := map[string]string{}
	for _, word := range []string{desk.Stopped, desk.Paused, desk.Denied, desk.Open, desk.Held, desk.Unserved, desk.Probing} {
		linked[word] = desk.RunbookOf(word)
	}
	for _, reason := range job.Reasons() {
		linked["parked as "+string(reason)] = desk.RunbookOfReason(reason)
	}
	for _, kind := range desk.NeedKinds() {
		linked["need of "+string(kind)] = kind.Runbook()
	}
	for what, section := range linked {
		path, id, _ := strings.Cut(runbookLink(section), "#")
		if path != "/runbook" || !strings.Contains(page, `<h2 id="`+id+`">`) {
			t.Errorf("%s links to %s, and the runbook has no such section", what, section)
		}
	}
	wants(t, page, `<li><a href="#spillwayheld">SpillwayHeld</a></li>`)
	for _, alert := range []string{"spillwaydispatcherdown", "spillwayreloadrefused"} {
		wants(t, page, `<h2 id="`+alert+`">`)
	}
}

// The runbook is Markdown. The console shows its commands, tables and lists as HTML.
func TestTheRunbookIsReadAsMarkdown(t *testing.T) {
	t.Parallel()
	got := string(htmlOf("# A <b>\n\nOne `a <i> [x](y)` and **two**,\nsee [here](#there) or [there](else.md#x).\n\n    type --this <x>\n    # that\n\n" +
		"| a | `b` |\n|---|---|\n| 1 | see [x](#y) |\n\n- one\n  goes on\n- two\n\n1. first\n2. second\n"))
	want := `<h1 id="a-b">A &lt;b&gt;</h1>
<p>One <code>a &lt;i&gt; [x](y)</code> and <b>two</b>,
see <a href="#there">here</a> or there.</p>
<pre tabindex="0">type --this &lt;x&gt;
# that
</pre>
<div class="wide" tabindex="0" role="group" aria-label="Table"><table role="table"><thead role="rowgroup"><tr role="row"><th role="columnheader" scope="col">a</th><th role="columnheader" scope="col"><code>b</code></th></tr></thead>
<tbody role="rowgroup"><tr role="row"><td role="cell">1</td><td role="cell">see <a href="#y">x</a></td></tr>
</tbody></table></div>
<ul>
<li>one
goes on</li>
<li>two</li></ul>
<ol>
<li>first</li>
<li>second</li></ol>
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
