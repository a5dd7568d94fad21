package double

import (
	"cmp"
	"slices"
	"strings"
)

// Plan is what a fate does. A table that writes one replaces the usual plan of the fate.
type Plan struct {
	// Gate is an answer before anything is checked; nothing is executed. Several are taken in turn. A star at the end stands for all answers with that
	// beginning.
	Gate names `yaml:"gate"`
	// WithKey lets calls without a key pass the gate.
	WithKey bool `yaml:"with_key"`
	// First is the result of the execution instead of the table's normal. Several are taken in turn.
	First names `yaml:"first"`
	// Charge says whether it charges: yes, no or turn. Without it, the answer decides.
	Charge string `yaml:"charge"`
	// Save is what the key keeps: answer, state, nothing, or an answer by name. Several are taken in turn. Without it, the table decides.
	Save names `yaml:"save"`
	// Cut closes the connection without an answer: before the call is executed, or after.
	Cut string `yaml:"cut"`
	// Delay makes the execution take the fate's delay.
	Delay bool `yaml:"delay"`
	// Running is what repeats get until it ends. Several are taken in turn.
	Running names `yaml:"running"`
	// Repeat is what repeats get after that, instead of what is saved. Several are taken in turn.
	Repeat names `yaml:"repeat"`
	// Outage answers repeats with unavailable until the key is forgotten.
	Outage bool `yaml:"outage"`
	// Short gives the key the short life of its rule.
	Short bool `yaml:"short"`
	// Foreign says that another caller's payment has used the key before.
	Foreign bool `yaml:"foreign"`
	// Fill uses up the longest window for nine tenths of its length, as if others had called.
	Fill bool `yaml:"fill"`
	// Lag hides the payment from searches and lists for the longest lag of the documents, or for the fate's delay.
	Lag bool `yaml:"lag"`
	// To is the state of the payment right after its creation.
	To string `yaml:"to"`
	// Step makes the second call of the payment meet the fate: it charges, and its answer is cut.
	Step bool `yaml:"step"`
	// Look is what a look-up shows: nothing, another (somebody else's payment) or half (an answer that ends in its middle).
	Look string `yaml:"look"`
}

// kind is a kind of fate, at any gateway.
type kind struct {
	says   string
	common bool // every gateway has it
	looks  bool // it is for look-ups, and every gateway with look-ups has it
	plan   Plan
}

var kinds = map[string]kind{
	"cut-before-charge": {common: true, says: "the connection ends before the call is executed; nothing is known of it", plan: Plan{Cut: "before"}},
	"cut-after-charge":  {common: true, says: "the call is executed, and its answer is lost", plan: Plan{Cut: "after"}},
	"slow":              {common: true, says: "the execution takes long: repeats come while it runs", plan: Plan{Delay: true}},
	"decline":           {common: true, says: "a plain decline", plan: Plan{First: names{"decline"}}},
	"429":               {common: true, says: "a limit is said to be used up, for each reason there is", plan: Plan{Gate: names{"429*"}}},
	"expired-token":     {common: true, says: "401, though the token was good a moment ago", plan: Plan{Gate: names{"unauthorised"}}},
	"unavailable":       {common: true, says: "503 before the call is looked at", plan: Plan{Gate: names{"unavailable"}}},
	"5xx":               {common: true, says: "a server error that has charged nothing; what is saved of it is the table's", plan: Plan{First: names{"error"}, Charge: "no"}},

	"key-too-long":        {says: "the key is refused as too long", plan: Plan{Gate: names{"bad-key"}}},
	"saved-500":           {says: "a 500 is saved under the key, and each repeat gets it again; it has charged each other time", plan: Plan{First: names{"error"}, Charge: "turn", Save: names{"answer"}}},
	"5xx-not-saved":       {says: "a server error after the charge is not saved: a repeat charges again", plan: Plan{First: names{"error"}, Charge: "yes", Save: names{"nothing"}}},
	"key-forgotten":       {says: "the answer is lost, and the service is down for this key until it is forgotten", plan: Plan{Cut: "after", Outage: true}},
	"life-unpublished":    {says: "as key-forgotten, with the shortest life that has to be feared", plan: Plan{Cut: "after", Outage: true, Short: true}},
	"life-shrank":         {says: "as key-forgotten, with the shortest life ever published", plan: Plan{Cut: "after", Outage: true, Short: true}},
	"409-done":            {says: "the answer is lost, and repeats get a conflict that names the payment", plan: Plan{Cut: "after"}},
	"409-blocked":         {says: "the call fails, and repeats get a conflict that says it was done", plan: Plan{First: names{"error"}, Charge: "no"}},
	"409-or":              {says: "the answer is lost, and repeats are told: processed already, or in progress", plan: Plan{Cut: "after", Repeat: names{"done-or-running"}}},
	"running-elsewhere":   {says: "the answer is lost, and while the work goes on repeats are told so with an odd status", plan: Plan{Cut: "after", Delay: true}},
	"other-body":          {says: "the answer is lost, and repeats are said to differ in their parameters", plan: Plan{Cut: "after", Repeat: names{"mismatch"}}},
	"other-body-replays":  {says: "the key was used before, by somebody else's payment, whose answer is given", plan: Plan{Foreign: true}},
	"2xx-later":           {says: "the payment is taken, and its outcome comes later", plan: Plan{First: names{"pending"}}},
	"2xx-no":              {says: "a decline with a status of success", plan: Plan{First: names{"denied"}}},
	"2xx-action":          {says: "the customer has to act first", plan: Plan{First: names{"action"}}},
	"saved-decline":       {says: "a decline that each repeat gets again", plan: Plan{First: names{"decline"}, Save: names{"answer"}}},
	"state-moves":         {says: "the answer is lost, and the payment moves on: repeats show it as it is then", plan: Plan{Cut: "after", To: "refunded"}},
	"half-saved-4xx":      {says: "a 400 that is saved each other time", plan: Plan{First: names{"executed-400"}, Save: names{"answer", "nothing"}}},
	"scope":               {says: "the key is one with somebody else's, who shares its scope", plan: Plan{Foreign: true}},
	"store-down":          {says: "the store of keys is down, for calls that have one", plan: Plan{Gate: names{"store-down"}, WithKey: true}},
	"hint-against-status": {says: "a header forbids the repeat that the status asks for, or asks for one that it forbids; in turn", plan: Plan{First: names{"hint-stop", "hint-go"}}},
	"limits-in-disguise":  {says: "a limit that does not look like one", plan: Plan{Gate: names{"limit-*"}}},
	"long-windows":        {says: "others have used up the longest window: a tenth of it is left to wait", plan: Plan{Fill: true}},
	"not-found-yet":       {says: "the answer is lost, and searches don't find the payment for as long as the documents admit to", plan: Plan{Cut: "after", Lag: true}},
	"look-absent":         {looks: true, says: "a look-up does not find the payment", plan: Plan{Look: "nothing"}},
	"look-another":        {looks: true, says: "a look-up shows somebody else's payment", plan: Plan{Look: "another"}},
	"look-truncated":      {looks: true, says: "a look-up's answer ends in its middle", plan: Plan{Look: "half"}},
	"look-5xx":            {looks: true, says: "a look-up gets a server error", plan: Plan{Gate: names{"error"}}},
	"look-429":            {looks: true, says: "a look-up is told that a limit is used up", plan: Plan{Gate: names{"429*"}}},
	"look-down":           {looks: true, says: "a look-up gets a 503", plan: Plan{Gate: names{"unavailable"}}},
	"look-cut":            {looks: true, says: "a look-up's answer is lost", plan: Plan{Cut: "after"}},
	"look-slow":           {looks: true, says: "a look-up takes long", plan: Plan{Delay: true}},

	"two-steps": {says: "a second call moves the money, and its answer is lost", plan: Plan{Step: true}},
	"guess":     {says: "a payment is taken for a double of another one by its content", plan: Plan{Cut: "after", Repeat: names{"guess"}}},
}

// FateNames lists all fates, in alphabetical order.
func FateNames() []string {
	all := make([]string, 0, len(kinds))
	for name := range kinds {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// FateSays says in a sentence what a fate is; "" of an unknown one.
func FateSays(name string) string { return kinds[name].says }

// FateNames lists the fates that the gateway has, in alphabetical order.
func (t *Table) FateNames() []string {
	return slices.DeleteFunc(FateNames(), func(name string) bool { return !t.has(name) })
}

// FatesOfPayments lists the gateway's fates of payments.
func (t *Table) FatesOfPayments() []string {
	return slices.DeleteFunc(t.FateNames(), func(name string) bool { return kinds[name].looks })
}

func (t *Table) has(fate string) bool {
	_, own := t.Fates[fate]
	return own || kinds[fate].common || kinds[fate].looks && t.asked()
}

// asked reports whether the gateway has look-ups.
func (t *Table) asked() bool {
	return slices.ContainsFunc(t.Endpoints, func(e Endpoint) bool { return e.asks() })
}

// plan returns what the fate does at this gateway, with the stars of its answers expanded.
func (t *Table) plan(fate string) Plan {
	p, own := t.Fates[fate]
	if !own || p.empty() {
		p = kinds[fate].plan
	}
	gate := names{}
	for _, name := range p.Gate {
		gate = append(gate, t.spread(name)...)
	}
	p.Gate = gate
	return p
}

// spread expands a name with a star.
func (t *Table) spread(name string) names {
	start, many := strings.CutSuffix(name, "*")
	if !many {
		return names{name}
	}
	var all names
	for a := range t.Answers {
		if strings.HasPrefix(a, start) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, cmp.Compare[string])
	return all
}

// empty reports whether the table leaves the plan to the fate.
func (p Plan) empty() bool {
	return len(p.Gate)+len(p.First)+len(p.Save)+len(p.Running)+len(p.Repeat) == 0 && p.Charge+p.Cut+p.To+p.Look == "" &&
		!p.WithKey && !p.Delay && !p.Outage && !p.Short && !p.Foreign && !p.Fill && !p.Lag && !p.Step
}
