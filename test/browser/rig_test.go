// Package browser drives the console in headless Chromium, with dispatchers as real processes. It is a module of its own, so that
// the everyday tests need no browser: run it with `make browser`.
package browser

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"spillway/internal/testkit"
)

var shots = flag.String("shots", "", "a `directory` for screenshots of every page, light and dark, narrow and wide")

const token = "a-token-for-tests"

var build = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "spillway-browser-"); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-C", "../..", "-o", dir+"/", "./cmd/dispatcher", "./cmd/enqueue").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if dir, err := build(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// rig is a dispatcher with a gateway that declines until it is told not to, and a browser.
type rig struct {
	t        *testing.T
	bin, dir string
	url      string
	declines atomic.Bool
	ctx      context.Context
	silent   bool // the page's scripts are off, and axe-core can't answer
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	var err error
	if r.bin, err = build(); err != nil {
		t.Fatal(err)
	}
	return r
}

// write writes the configuration.
func (r *rig) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "dispatcher.yaml"), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func setup(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.declines.Store(true)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if r.declines.Load() {
			w.WriteHeader(http.StatusPaymentRequired)
			fmt.Fprint(w, `{"error":{"code":"card_declined","message":"<b>Your card</b> was declined."}}`)
			return
		}
		fmt.Fprint(w, `{"id":"ch_1"}`)
	}))
	t.Cleanup(gateway.Close)
	r.write(fmt.Sprintf("redis: %s\ntoken: %s\ngateways:\n"+
		"  stripe:\n    request: {url: %q}\n    amount: {field: amount, currency: currency}\n    leak: {limits: [50/s]}\n"+
		"  adyen:\n    request: {url: %q, idempotency_prefix: adyen-}\n    leak: {limits: [20/s, 600/m]}\n    admission: {limits: [20/s], burst: 20}\n    replay: manual\n",
		testkit.Server(t).URL(), token, gateway.URL, gateway.URL))
	r.serve()
	r.browser()
	return r
}

// serve starts a dispatcher that ends with the test.
func (r *rig) serve(args ...string) {
	r.t.Helper()
	listen := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(r.t))
	cmd := r.command("dispatcher", append([]string{"run", "--listen", listen}, args...)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || r.t.Failed() {
			r.t.Errorf("the dispatcher ended with %v:\n%s", err, &log)
		}
		if strings.Contains(log.String(), token) || strings.Contains(log.String(), "alert(") {
			r.t.Error("a secret or a payload is in the log")
		}
	})
	r.url = "http://" + listen
	testkit.Eventually(r.t, 20*time.Second, "the dispatcher", func() bool {
		answer, err := http.Get(r.url + "/readyz")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

func (r *rig) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(r.bin, name), args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+r.dir)
	return cmd
}

// enqueue sends n jobs of a batch in.
func (r *rig) enqueue(gateway, batch string, n int) {
	r.t.Helper()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"id":"%s-%03d","batch":%q,"payload":{"amount":%d,"currency":"EUR","note":"<script>alert(1)</script>"}}`+"\n", batch, i, batch, 1900+i)
	}
	r.feed(gateway, lines.String())
}

// feed sends lines in. Jobs that find no room are parked.
func (r *rig) feed(gateway, lines string) {
	r.t.Helper()
	cmd := r.command("enqueue", "-g", gateway, "-f", "-")
	cmd.Stdin = strings.NewReader(lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("enqueue: %v\n%s", err, out)
	}
}

// browser starts Chromium.
func (r *rig) browser() {
	r.t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1600, 1000))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	r.t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	r.t.Cleanup(cancel)
	r.ctx = ctx
	if err := chromedp.Do(ctx); errors.Is(err, exec.ErrNotFound) {
		r.t.Fatal("there is no Chromium: apt-get install -y chromium, or leave these tests out (make test does)")
	} else if err != nil {
		r.t.Fatal(err)
	}
}

type step = chromedp.Action[chromedp.Void]

// do runs steps, each of which waits for what it needs.
func (r *rig) do(what string, steps ...step) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, 20*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		at, _ := ask(r, chromedp.Location())
		r.t.Fatalf("%s: %v\nat %s:\n%s", what, err, at, r.text())
	}
}

// ask returns what an action finds now.
func ask[T any](r *rig, a chromedp.Action[T]) (T, error) { return askFor(r, 5*time.Second, a) }

func askFor[T any](r *rig, within time.Duration, a chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(r.ctx, within)
	defer cancel()
	return chromedp.Run(ctx, a)
}

// sees waits until the page's text has this.
func (r *rig) sees(text string) {
	r.t.Helper()
	var last string
	testkit.Eventually(r.t, 20*time.Second, "the page to say "+text, func() bool {
		last = r.text()
		return strings.Contains(last, text)
	})
}

func (r *rig) text() string {
	text, _ := ask(r, chromedp.Text(chromedp.CSS("main"))) // between two pages there is none
	return text
}

// follow clicks a link or button that has this text. A page that brings itself up to date may put another in its place meanwhile: then
// it is looked for again.
func follow(text string) step {
	click := chromedp.Click(chromedp.Search(fmt.Sprintf(`//*[self::a or self::button or self::summary][starts-with(normalize-space(.), %q)]`, text)), chromedp.NodeVisible)
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		for {
			v, err := click(ctx, t)
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "node") {
				return v, err
			}
		}
	}
}

func typeInto(field, text string) step {
	at := chromedp.CSS(field)
	return chromedp.Steps(chromedp.WaitVisible(at), chromedp.SetAttributeValue(at, "value", ""), chromedp.SendKeys(at, text))
}

// javaScript switches the page's scripts on or off.
func javaScript(on bool) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
		return err
	})
}

// scheme makes the browser prefer light or dark.
func scheme(name string) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
		return err
	})
}

// picture checks a page as the eye and as a reader of the screen have it, and writes screenshots of it, if they are asked for.
func (r *rig) picture(name string) {
	r.t.Helper()
	r.pictures(name, []int64{390, 1600}, []string{"light", "dark"})
}

func (r *rig) pictures(name string, widths []int64, schemes []string) {
	r.t.Helper()
	if *shots != "" {
		if err := os.MkdirAll(*shots, 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, wide := range widths {
		for _, light := range schemes {
			r.do("a picture of "+name, chromedp.EmulateViewport(wide, 900), scheme(light))
			r.fits(fmt.Sprintf("%s at %d", name, wide))
			r.short(name, wide)
			if *axe != "" && !r.silent {
				r.accessible(fmt.Sprintf("%s at %d, %s", name, wide, light))
			}
			if *shots == "" {
				continue
			}
			png, err := askFor(r, 30*time.Second, chromedp.FullScreenshot(100)) // of a page that may be very long
			if err != nil {
				r.t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(*shots, fmt.Sprintf("%s-%d-%s.png", name, wide, light)), png, 0o600); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	for _, wide := range []int64{768, 1100, 1180, 1366} { // tablets, and where tables come in place of cards
		r.do("a look at "+name, chromedp.EmulateViewport(wide, 900))
		r.fits(fmt.Sprintf("%s at %d", name, wide))
	}
	r.do("the window", chromedp.EmulateViewport(1600, 1000))
}
