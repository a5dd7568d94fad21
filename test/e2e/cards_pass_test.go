package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// asCards are the numbers that cards may have, as docs/security.md lists them.
var asCards = []*regexp.Regexp{
	regexp.MustCompile(`^4(\d{12}|\d{15}|\d{17,18})$`),
	regexp.MustCompile(`^(5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720|60\d|610|9792|8600|9860)\d*$`), // of 16 digits
	regexp.MustCompile(`^3[47]\d{13}$`),
	regexp.MustCompile(`^(6011|64[4-9]|65|352[89]|35[3-8]|62|81|82|220[0-5])\d*$`), // of 16 to 19
	regexp.MustCompile(`^(30[0-5]|3095|36|38|39)\d*$`),                             // of 14 to 19
	regexp.MustCompile(`^(50|5[678]|63|67)\d*$`),                                   // of 13 to 19
}

// takenForCard says whether digits look like a card number: by the list, and by the Luhn check.
func takenForCard(digits string) bool {
	least, most := []int{13, 16, 15, 16, 14, 13}, []int{19, 16, 15, 19, 19, 19}
	for i, begins := range asCards {
		if n := len(digits); n >= least[i] && n <= most[i] && begins.MatchString(digits) && testkit.WithCheck(digits[:n-1]) == digits {
			return true
		}
	}
	return false
}

func someDigits(random *rand.Rand, begins string, length int) string {
	var b strings.Builder
	b.WriteString(begins)
	for b.Len() < length {
		b.WriteByte('0' + byte(random.IntN(10)))
	}
	return b.String()
}

// 5,000 jobs have an order number and a phone number each. If one of them begins like a card number and passes the Luhn check by chance, the job is
// refused, and the message names the field. All others are accepted, by enqueue and by the API.
func TestOrderAndPhoneNumbersGoIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [1/m]}\n"+roomy)
	random := rand.New(rand.NewPCG(7, 8))
	const jobs = 5000
	var lines [jobs]string
	fields := map[string]string{} // by job
	wrong := map[string]int{}
	for i := range jobs {
		order := someDigits(random, []string{"", "4", "20", "400638", "9"}[i%5], []int{10, 13, 12, 13, 16}[i%5])
		said := []string{"SO-", "", "PO/", "", "inv"}[i%5] + order
		phone := someDigits(random, []string{"+4915", "0151 2", "49151", "0049171", "+4479"}[i%5], []int{14, 11, 13, 14, 13}[i%5])
		var named []string
		if takenForCard(order) {
			named = append(named, "order")
			wrong[[]string{"of any", "Visa of 13 by chance", "of any", "German article", "of any"}[i%5]]++
		}
		if !strings.ContainsAny(phone, "+ ") && takenForCard(phone) {
			named = append(named, "customer.phone")
			wrong["phone number"]++
		}
		if id := fmt.Sprintf("o%d", i); len(named) > 0 {
			fields[id] = "the field " + named[0] + " has what"
			if len(named) > 1 {
				fields[id] = "the fields " + strings.Join(named, ", ") + " have what"
			}
		}
		lines[i] = fmt.Sprintf(`{"id":"o%d","payload":{"amount":%d,"order":%q,"customer":{"phone":%q}}}`, i, 100+i, said, phone)
	}
	if len(fields) < jobs/50 || len(fields) > jobs/5 {
		t.Fatalf("%d jobs would be refused: %v", len(fields), wrong)
	}
	t.Logf("%d of %d numbers are taken for cards: %v", len(fields), 2*jobs, wrong)
	file := strings.Join(lines[:], "\n") + "\n"

	r := w.do("enqueue", "-g", "stripe", "-f", w.file("orders.ndjson", file), "-o", "json", "--rejects", "rejects.ndjson")
	if got := decode[report](t, r.out); r.code != 3 || got.Invalid != len(fields) || got.Enqueued != jobs-len(fields) {
		t.Fatalf("exit code %d, %+v, want %d refused\n%s", r.code, got, len(fields), r.err)
	}
	for line := range strings.Lines(read(t, filepath.Join(w.dir, "rejects.ndjson"))) {
		var j struct{ ID string }
		if err := json.Unmarshal([]byte(line), &j); err != nil || fields[j.ID] == "" {
			t.Errorf("refused: %.300s %v", line, err)
		}
	}

	at := w.listening()
	resp, err := http.Post("http://"+at+"/v1/gateways/stripe/jobs", "application/x-ndjson", strings.NewReader(strings.ReplaceAll(file, `{"id":"o`, `{"id":"again-o`)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answers, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(answers)) {
		want := fields[fmt.Sprintf("o%d", n)]
		if got := strings.Contains(line, "what looks like a card number"); got != (want != "") || !strings.Contains(line, want) || (want == "") != strings.Contains(line, `"enqueued"`) {
			t.Errorf("%s was answered %s, want %q", lines[n], line, want)
		}
		n++
	}
	if n != jobs {
		t.Errorf("%d answers, want %d", n, jobs)
	}
}
