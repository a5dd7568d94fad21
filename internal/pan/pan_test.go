package pan

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// number returns a card number of a length that begins with these digits.
func number(begins string, length int, random *rand.Rand) string {
	text := begins
	for len(text) < length-1 {
		text += string('0' + byte(random.IntN(10)))
	}
	for last := '0'; ; last++ {
		digits := []byte(text + string(last))
		for i := range digits {
			digits[i] -= '0'
		}
		if luhn(digits) {
			return text + string(last)
		}
	}
}

// everyScheme returns 10 numbers of each length of each scheme.
func everyScheme() (all []string) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range schemes {
		for length := least; length <= most; length++ {
			for range 10 {
				if s.lengths&(1<<length) != 0 {
					all = append(all, number(fmt.Sprint(s.from+random.IntN(s.to-s.from+1)), length, random))
				}
			}
		}
	}
	return all
}

func TestCardNumbersAreFoundHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	wide := strings.NewReplacer("0", "０", "1", "１", "2", "２", "3", "３", "4", "４", "5", "５", "6", "６", "7", "７", "8", "８", "9", "９")
	for _, n := range everyScheme() {
		grouped := func(by string) string {
			var groups []string
			for rest := n; rest != ""; rest = rest[min(4, len(rest)):] {
				groups = append(groups, rest[:min(4, len(rest))])
			}
			return strings.Join(groups, by)
		}
		for _, said := range []string{n, grouped(" "), grouped("-"), grouped("."), grouped(" - "), grouped("\u00a0"), grouped("\u2011"), grouped("_"), wide.Replace(n),
			n[:4] + " " + n[4:10] + " " + n[10:]} {
			for _, text := range []string{said, "card " + said + " was declined", "inv" + said, said + " 123", "%B" + said + "^DOE/J^2912", said + "=29121010000000", `{"n":` + said + `}`} {
				if !Contains([]byte(text)) {
					t.Errorf("%s: nothing was found", text)
				}
				masked := MaskString(text)
				if ContainsString(masked) || masked == text {
					t.Errorf("%s was masked as %s", text, masked)
				}
			}
		}
	}
	if got := MaskString("a 4111 1111 1111 1111 and 371449635398431."); got != "a **** **** **** 1111 and ***********8431." {
		t.Errorf("masked as %s", got)
	}
}

func TestWhatIsNoCardNumberIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "4111", "4111111111111112", "1111111111111117", "411111111111111", "41111111111111111111111111111111",
		"4111,1111,1111,1111", "4111\n1111\n1111\n1111", "2026-11-26 15:49:34.123456", "1764172174123456789", "+4915123456784", "(+49 1512 3456784)",
		"a5d0f2c1-4111-4111-8111-111111111111", "id-41111111-1111-4111-8111-1a1111111111-x", "192.168.100.200", "4111    1111    1111    1111",
		"AT414824475771046563", "to BE63799887997972.", "at40 2885 8495 7393 1852", "DK49 0777 6362 1344 30, Aarhus",
		"da39a3ee4111111111111111bfef95601890afd8", "507f4111111111111111439a", strings.Repeat("0", 19), "4111a1111b1111c1111",
	} {
		if spans := Find([]byte(text)); len(spans) > 0 {
			t.Errorf("%q: found %q", text, text[spans[0].From:spans[0].To])
		}
	}
}

// Other numbers are taken for card numbers if they begin like one and pass the check: one in ten of those with such a beginning.
func TestFewOrderNumbersAreTakenForCards(t *testing.T) {
	t.Parallel()
	if !ContainsString("XX414824475771046563") {
		t.Error("what is not an IBAN lets a card number pass")
	}
	random := rand.New(rand.NewPCG(3, 4))
	taken := 0
	for range 10_000 {
		digits := make([]byte, 10+random.IntN(8))
		for i := range digits {
			digits[i] = '0' + byte(random.IntN(10))
		}
		found := ContainsString(string(digits))
		values := make([]byte, len(digits))
		for i, d := range digits {
			values[i] = d - '0'
		}
		if want := len(digits) >= least && issued(values) && luhn(values); found != want {
			t.Errorf("%s: found %v, want %v", digits, found, want)
		}
		if found {
			taken++
		}
	}
	if taken < 10 || taken > 200 {
		t.Errorf("%d of 10,000 were taken for cards", taken)
	}
}

// stretch looks only at every 13th byte. It must never miss what a search of every byte finds.
func FuzzFind(f *testing.F) {
	f.Add([]byte("xx 4111 1111 1111 1111"))
	f.Add([]byte("４111111111111111 0"))
	f.Add([]byte("٤١١١١١١١١١١١١١١١ ४१११११११११११११११ 4\u00a0111 1111 1111\u20111111"))
	f.Add([]byte("0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 4222222222222"))
	f.Fuzz(func(t *testing.T, text []byte) {
		found, slowly := Find(text), within(text, 0, len(text), nil)
		if !slices.Equal(found, slowly) || len(found) > 0 && !Suspected(text) {
			t.Errorf("%q: found %v, want %v", text, found, slowly)
		}
		if masked := Mask(text); len(found) > 0 && bytes.Equal(masked, text) {
			t.Errorf("%q was not masked", text)
		}
		at := 0
		for _, s := range found {
			if s.From < at || s.To <= s.From {
				t.Errorf("%q: %v", text, found)
			}
			at = s.To
		}
	})
}

func TestANumberIsSeenAtEachPlace(t *testing.T) {
	t.Parallel()
	for before := range 60 {
		for _, n := range []string{"4222222222222", "4111111111111111", "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"} {
			text := strings.Repeat("x", before) + "12 a" + n + "b 99 c 1234567890123 d " + n
			if len(Find([]byte(text))) != 2 {
				t.Errorf("%s: not found", text)
			}
		}
	}
}

func TestCopyMasksNumbersAcrossPieces(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 64<<10-8) + "4111111111111111 " + strings.Repeat("y", 100<<10) + "4111-1111-1111-1111"
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "half": iotest.HalfReader(strings.NewReader(text))} {
		var out strings.Builder
		if err := Copy(&out, r); err != nil || out.String() != MaskString(text) || strings.Contains(out.String(), "4111") {
			t.Errorf("%s: %v, %d bytes", name, err, out.Len())
		}
	}
	long := strings.Repeat("1", 300<<10)
	var out strings.Builder
	if err := Copy(&out, strings.NewReader(long)); err != nil || out.String() != long {
		t.Errorf("%v, %d bytes", err, out.Len())
	}
}

func TestNoCardNumberReachesTheLog(t *testing.T) {
	t.Parallel()
	const n = "4111111111111111"
	var out bytes.Buffer
	log := slog.New(Handler{slog.NewJSONHandler(&out, nil)})
	log.With("path", "/jobs/"+n).WithGroup("g").Info("of "+n, "error", fmt.Errorf("card %s", n), "n", 4111111111111111, slog.Group("in", "x", n), n, 1)
	if got := out.String(); strings.Contains(got, "411111") || strings.Count(got, "1111") < 6 {
		t.Errorf("the log has %s", got)
	}
	out.Reset()
	log.Info("started", "gateway", "stripe", "took", 12)
	if got := out.String(); !strings.Contains(got, `"msg":"started","gateway":"stripe","took":12`) {
		t.Errorf("the log has %s", got)
	}
}

func BenchmarkContains(b *testing.B) {
	for name, of := range map[string]string{"invoice": "2026-11-0001042", "phone": "+43 664 1234567", "order": "4300000000017", "cyrillic": "Счёт за ноябрь, спасибо"} {
		payload := []byte(`{"amount":4900,"currency":"EUR","customer":"cus_8s9dKq2","description":"Invoice ` + of + ` of November","iban":"NL91ABNA0417164300","name":"Maria Huber","metadata":{"contract":"C-2026-118822"}}`)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if Contains(payload) {
					b.Fatal("suspected")
				}
			}
		})
	}
}

// The search allocates nothing if it finds nothing, whatever digits a text has.
func TestASearchInVainAllocatesNothing(t *testing.T) {
	for _, text := range []string{`{"phone":"+43 664 1234567","order":"4300000000017","at":"2026-11-26 15:49:34.123456"}`, "AT41 4824 8257 7104 6563", strings.Repeat("Счёт ", 20)} {
		in := []byte(text)
		if n := testing.AllocsPerRun(20, func() { Contains(in) }); n > 0 {
			t.Errorf("%q: %g allocations", text, n)
		}
	}
}

// A payload may have a megabyte, and its sender chooses the content. A search in quadratic time would take minutes.
func TestALongTextTakesNoLongerThanItsLength(t *testing.T) {
	t.Parallel()
	const visa, size, patience = "4111111111111111", 256 << 10, 30 * time.Second
	for _, unit := range []string{"4 ", "4-", "4444 ", "400000 ", visa + "a", "a" + visa, visa + " "} {
		text, begun := []byte(strings.Repeat(unit, size/len(unit))), time.Now()
		found := len(Find(text))
		if took := time.Since(begun); took > patience {
			t.Errorf("%d times %q: %s", size/len(unit), unit, took)
		}
		if want := size / len(unit); strings.Contains(unit, visa) && found < want-1 {
			t.Errorf("%d times %q: %d found", want, unit, found)
		}
	}
}

// One in twenty references of Swiss QR bills, written in groups of five digits, has what looks like a card number in it.
func TestReferencesOfSwissBillsPass(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(27, 5))
	carry, suspected := []int{0, 9, 4, 6, 8, 2, 7, 1, 3, 5}, 0
	for range 2000 {
		var b strings.Builder
		sum := 0
		for i := range 26 {
			d := random.IntN(10)
			sum = carry[(sum+d)%10]
			b.WriteByte('0' + byte(d))
			if i%5 == 1 {
				b.WriteByte(' ')
			}
		}
		last := (10 - sum) % 10
		right, wrong := b.String()+fmt.Sprint(last), b.String()+fmt.Sprint((last+1)%10)
		for _, text := range []string{right, "Rechnung " + right + ", danke", "x:" + right} {
			if ContainsString(text) {
				t.Errorf("%q: a card number", text)
			}
		}
		if ContainsString(wrong) {
			suspected++
		}
	}
	if suspected < 20 {
		t.Errorf("of references with a wrong check digit %d are suspected", suspected)
	}
	for _, known := range []string{"21 00000 00003 13947 14300 09017", "00 00000 00000 00000 00000 00000"} { // that of the Swiss Implementation Guidelines
		if !isQR([]byte(known)) {
			t.Error(known)
		}
	}
	if text := "21 00000 00003 13947 14300 09017 4111 1111 1111 1111"; MaskString(text) != "21 00000 00003 13947 14300 09017 **** **** **** 1111" {
		t.Error(MaskString(text))
	}
}
