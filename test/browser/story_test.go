package browser

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"spillway/internal/testkit"
)

func TestTheConsoleInABrowser(t *testing.T) {
	story(t, true)
}

func TestTheConsoleWithoutJavaScript(t *testing.T) {
	story(t, false)
}

// story is what an operator does after a bad hour: finds a dead letter, replays it and sees it done; pauses and resumes; changes a limit.
func story(t *testing.T, scripts bool) {
	r := setup(t)
	r.enqueue("stripe", "november", 12)
	r.enqueue("adyen", "october", 30) // ten find no room
	r.silent = !scripts
	r.do("JavaScript", javaScript(scripts))
	r.logIn()
	r.findAndReplay(scripts)
	r.pauseAndResume()
	r.changeLimit()
	r.do("log out", follow("Log out"))
	r.sees("Log in")
}

func (r *rig) logIn() {
	r.t.Helper()
	r.do("a wrong token", chromedp.Navigate(r.url+"/"), typeInto("#token", "wrong"), follow("Log in"))
	r.sees("That is not the token.")
	r.picture("login")
	r.do("the token", typeInto("#token", token), follow("Log in"))
	r.sees("stripe")
}

// waitForLetters waits until the gateway has declined all it was sent.
func (r *rig) waitForLetters(scripts bool) {
	r.t.Helper()
	testkit.Eventually(r.t, 20*time.Second, "dead letters", func() bool {
		if !scripts {
			r.do("reload", chromedp.Reload())
		}
		return strings.Contains(r.text(), "refused 12")
	})
}

func (r *rig) findAndReplay(scripts bool) {
	r.t.Helper()
	r.waitForLetters(scripts)
	r.picture("overview")
	r.do("the gateway", follow("stripe"))
	r.sees("Dead letters")
	r.picture("gateway")
	r.do("the filter", follow("Filter"), typeInto("#f-match", "card_.*declined"), typeInto("#f-id", "november-007"), follow("Show"))
	r.sees("No filter")
	r.picture("filtered")
	r.do("payloads", follow("Show payloads"))
	r.sees("<script>alert(1)</script>")
	r.picture("payloads")
	r.declines.Store(false)
	r.do("the preview", follow("Replay…"))
	r.sees("EUR 19.07")
	r.picture("preview")
	r.do("the replay", typeInto("#why", "the bank is back, ticket 4711"), typeInto("#who", "Ada"), follow("Replay: 1 job"))
	r.sees("1 job replayed")
	r.sees("the bank is back, ticket 4711")
	r.picture("replayed")
	r.do("the job", typeInto("#find", "november-007"), follow("Find"))
	r.sees("Idempotency key")
	r.reload(scripts, "It is done")
	r.picture("job")
}

// reload waits until a page says something; without JavaScript by loading it again.
func (r *rig) reload(scripts bool, text string) {
	r.t.Helper()
	if scripts {
		r.sees(text)
		return
	}
	testkit.Eventually(r.t, 20*time.Second, "the page to say "+text, func() bool {
		r.do("reload", chromedp.Reload())
		return strings.Contains(r.text(), text)
	})
}

func (r *rig) pauseAndResume() {
	r.t.Helper()
	r.do("pause", chromedp.Navigate(r.url+"/gateways/adyen"), follow("Pause"), typeInto("#pause-why", "maintenance of the bank"), follow("Pause adyen"))
	r.sees("maintenance of the bank (Ada)")
	r.picture("paused")
	r.do("a replay meanwhile", follow("Replay…"))
	r.sees("A replay stops at once for now")
	r.do("resume", follow("adyen"), follow("Resume"))
	testkit.Eventually(r.t, 20*time.Second, "the gateway to be resumed", func() bool {
		text := r.text()
		return strings.Contains(text, "Dead letters") && !strings.Contains(text, "maintenance of the bank (Ada)")
	})
}

func (r *rig) changeLimit() {
	r.t.Helper()
	r.do("a limit", follow("Change the limit"), typeInto("#to", "10/s 300/m"), follow("Preview"))
	r.sees("Admission lets 20/s in")
	r.picture("limit")
	r.do("set it", follow("Let 10/s 300/m hold"))
	r.sees("set live; the file says 20/s 600/m")
	r.do("reset it", follow("Change the limit"), follow("Let the file’s"), follow("Let 20/s 600/m hold"))
	r.sees("limit 20/s 600/m")
}
