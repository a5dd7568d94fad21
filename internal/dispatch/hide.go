package dispatch

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"spillway/internal/access"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/pan"
)

const (
	// leastSecret is the shortest secret searched for in answers, in bytes: shorter ones occur in many answers
	// by chance.
	leastSecret = 6
	// leastPrefix is the shortest prefix of a secret that is masked like the whole, in bytes.
	leastPrefix = 8
	// mostSpellings is how many encodings may be nested, such as a form in JSON in HTML.
	mostSpellings = 3
)

// masked replaces a secret.
const masked = "<secret>"

// needle is a text searched for in answers.
type needle struct {
	text []byte
	// least is how long a prefix of it suffices, in bytes.
	least int
	// word says that the text is base64: the whole word around it is masked.
	word bool
}

// needlesOf returns the texts to search for, for one secret: itself, itself with + for spaces as in forms, its
// hexadecimal digits, and its base64.
func needlesOf(secret string) []needle {
	whole := needle{text: []byte(secret), least: len(secret)}
	if len(secret) < leastPrefix {
		return []needle{whole}
	}
	if begins := secret[:leastPrefix]; strings.ContainsAny(begins, "0123456789_-+/=.") && !strings.Contains(begins, " ") {
		whole.least = leastPrefix // a prefix of only letters may be an ordinary word
	}
	all := []needle{whole}
	if strings.Contains(secret, " ") {
		form := strings.ReplaceAll(secret, " ", "+")
		all = append(all, needle{text: []byte(form), least: len(form)})
	}
	digits := hex.EncodeToString([]byte(secret))
	for _, text := range []string{digits, strings.ToUpper(digits)} {
		all = append(all, needle{text: []byte(text), least: 2 * whole.least})
	}
	for before := range 3 {
		// In base64, a text has one of three forms, depending on its offset. Its first and last letters depend
		// on its neighbours.
		padded := append(make([]byte, before), secret...)
		for _, coding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := coding.EncodeToString(padded)
			text = text[(before*8+5)/6 : len(padded)*8/6]
			all = append(all, needle{text: []byte(text), least: len(text), word: true})
		}
	}
	return all
}

// hide masks the secrets in a text, in whatever encoding: plain, with %2B or %2b, \u002b or \/, &#43; or &amp;,
// or nested.
func (m mask) hide(text []byte) []byte {
	var found []part
	said := asItIs(text)
	for range mostSpellings + 1 {
		found = said.members(said.find(m.needles, found))
		if !m.keepCards {
			found = said.cards(found)
		}
		plainer := said.decoded()
		if len(plainer.text) == len(said.text) {
			break
		}
		said = plainer
	}
	if len(found) == 0 {
		return text
	}
	slices.SortStableFunc(found, func(a, b part) int { return cmp.Compare(a.from, b.from) })
	var out []byte
	at := 0
	for _, s := range found {
		if s.from >= at {
			out = append(append(out, text[at:s.from]...), cmp.Or(s.as, masked)...)
		}
		at = max(at, s.to)
	}
	return append(out, text[at:]...)
}

// part is a span of an answer.
type part struct {
	from, to int
	as       string // its replacement; empty: masked
}

// spelling is an answer with some encodings decoded.
type spelling struct {
	text []byte
	// at maps each byte to its offset in the answer. The last element is the answer's length.
	at []int
}

func asItIs(text []byte) spelling {
	s := spelling{text: text, at: make([]int, len(text)+1)}
	for i := range s.at {
		s.at[i] = i
	}
	return s
}

// find appends the spans of the answer in which the needles occur.
func (s spelling) find(needles []needle, to []part) []part {
	for _, n := range needles {
		for from := 0; ; {
			i := bytes.Index(s.text[from:], n.text[:n.least])
			if i < 0 {
				break
			}
			first, last := s.extent(n, from+i)
			to = append(to, part{from: s.at[first], to: s.at[last]})
			from = last
		}
	}
	return to
}

// secretMember matches an object member whose name marks it as secret: with Stripe's client_secret, anyone can
// confirm the payment, and a card's verification code must not be kept. Its value is a text or a number.
var secretMember = regexp.MustCompile(`(?i)"[a-z0-9_.-]*(?:secret|password|passwd|private_?key|(?:access|refresh|id|session)_?token|cvc2?|cvv2?|security_?code|card_?code|card_?verification_?(?:value|code))"\s*:\s*(?:"((?:[^"\\]|\\.)*)|(-?[0-9][0-9.eE+-]*))`)

// members appends the spans of the values of members whose names mark them as secret.
func (s spelling) members(to []part) []part {
	for _, at := range secretMember.FindAllSubmatchIndex(s.text, -1) {
		for _, first := range []int{2, 4} { // of the text, and of the number
			if from, last := at[first], at[first+1]; last > from {
				to = append(to, part{from: s.at[from], to: s.at[last]})
			}
		}
	}
	return to
}

// cards appends the spans of card numbers.
func (s spelling) cards(to []part) []part {
	for _, c := range pan.Find(s.text) {
		to = append(to, part{from: s.at[c.From], to: s.at[c.To], as: string(pan.Masked(s.text[c.From:c.To]))})
	}
	return to
}

// extent returns how long the needle's match is that begins at first.
func (s spelling) extent(n needle, first int) (int, int) {
	last := first + n.least
	for last < len(s.text) && last-first < len(n.text) && s.text[last] == n.text[last-first] {
		last++
	}
	if !n.word {
		return first, last
	}
	for first > 0 && inBase64(s.text[first-1]) {
		first--
	}
	for last < len(s.text) && (inBase64(s.text[last]) || s.text[last] == '=') {
		last++
	}
	return first, last
}

func inBase64(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("+/-_", c) >= 0
}

// decoded decodes one level of encoding of each byte.
func (s spelling) decoded() spelling {
	out := spelling{text: make([]byte, 0, len(s.text)), at: make([]int, 0, len(s.at))}
	for i := 0; i < len(s.text); {
		said, n := decodeOne(s.text[i:])
		for range said {
			out.at = append(out.at, s.at[i])
		}
		out.text = append(out.text, said...)
		i += n
	}
	out.at = append(out.at, s.at[len(s.text)])
	return out
}

// decodeOne decodes the first n bytes of a text: %2b, \u002b, \x2b, \/ and &#43; are one byte, anything else is
// itself.
func decodeOne(text []byte) (said []byte, n int) {
	switch text[0] {
	case '%':
		if c, ok := hexAt(text, 1, 2); ok {
			return []byte{byte(c)}, 3
		}
	case '\\':
		return decodeEscape(text)
	case '&':
		const longest = 12
		if end := bytes.IndexByte(text[:min(len(text), longest)], ';'); end > 0 && bytes.LastIndexByte(text[:end], '&') == 0 {
			if plain := html.UnescapeString(string(text[:end+1])); plain != string(text[:end+1]) {
				return []byte(plain), end + 1
			}
		}
	}
	return text[:1], 1
}

func decodeEscape(text []byte) (said []byte, n int) {
	if len(text) < 2 {
		return text, 1
	}
	switch text[1] {
	case 'u':
		if c, ok := hexAt(text, 2, 4); ok {
			return utf8.AppendRune(nil, rune(c)), 6
		}
	case 'x':
		if c, ok := hexAt(text, 2, 2); ok {
			return []byte{byte(c)}, 4
		}
	case '/', '"', '\'', '\\':
		return text[1:2], 2
	}
	return text[:1], 1
}

// hexAt parses hexadecimal digits.
func hexAt(text []byte, at, digits int) (uint64, bool) {
	if len(text) < at+digits {
		return 0, false
	}
	c, err := strconv.ParseUint(string(text[at:at+digits]), 16, 32)
	return c, err == nil
}

// mask removes a gateway's secrets from its answers: some gateways quote the request in errors, and answers are
// stored with the job and shown to its viewers.
type mask struct {
	needles   []needle
	keepCards bool // card numbers are not masked
}

// maskOf is newMask, and masks card numbers too, unless the gateway allows them.
func maskOf(g config.Gateway) mask {
	m := newMask(g.Request)
	m.keepCards = g.Pan.Then == job.CardsAllow
	return m
}

func newMask(q config.Request) mask {
	all := map[string]bool{q.Sign.Secret.Reveal(): true, q.OAuth2.ClientSecret.Reveal(): true}
	for name, value := range q.Headers {
		if harmless.MatchString(name) {
			continue
		}
		text := value.Reveal()
		all[text] = true
		if scheme, credentials, ok := strings.Cut(text, " "); ok { // Bearer …, Basic …
			all[credentials] = true
			if strings.EqualFold(scheme, "Basic") {
				all[inBasic(credentials)] = true
			}
		}
	}
	for name, parts := range q.JobHeaders {
		for _, p := range parts {
			if harmless.MatchString(name) {
				break
			}
			text := p.Text.Reveal()
			if _, credentials, ok := strings.Cut(text, " "); ok {
				text = credentials
			}
			all[text], all[p.Variable.Reveal()] = true, true
		}
	}
	for _, address := range []string{q.URL.Reveal(), q.Proxy.Reveal(), q.OAuth2.TokenURL.Reveal()} {
		inURL(address, all)
	}
	var m mask
	for text := range all {
		m.add(text)
	}
	return m
}

func (m *mask) add(secret string) {
	if len(secret) >= leastSecret {
		m.needles = append(m.needles, needlesOf(secret)...)
	}
}

// with returns a function that masks the current access tokens, too.
func (m mask) with(tokens *access.Keeper) func([]byte) []byte {
	return func(text []byte) []byte {
		now := mask{needles: slices.Clone(m.needles), keepCards: m.keepCards}
		for _, token := range tokens.Known() {
			now.add(token)
		}
		return now.hide(text)
	}
}

// inBasic returns the secret of a base64 user and password: the password, or the user if there is none.
func inBasic(credentials string) string {
	both, _ := base64.StdEncoding.DecodeString(credentials)
	user, password, _ := strings.Cut(string(both), ":")
	return cmp.Or(password, user)
}

// harmless matches headers that describe the message, not the sender.
var harmless = regexp.MustCompile(`(?i)^(accept.*|content-.*|user-agent|host|prefer|cache-control|.*-version)$`)

var secretParameter = regexp.MustCompile(`(?i)pass|pwd|secret|token|key|sig|auth|cred`)

// inURL adds the password and the secret parameters of a URL.
func inURL(address string, to map[string]bool) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	if password, ok := u.User.Password(); ok {
		to[password] = true
	}
	for name, values := range u.Query() {
		for _, v := range values {
			if secretParameter.MatchString(name) && !strings.Contains(v, "{") {
				to[v] = true
			}
		}
	}
}
