package doctor

// fewAlike is the number of similar checks that are shown individually.
const fewAlike = 3

// Shown is a check for people, with the number of other checks of the same name and level, at other gateways,
// that are omitted after it.
type Shown struct {
	Check
	More int
}

// Few keeps the first three checks of each name and level at gateways, so that the checks of thousands of
// gateways do not hide one gateway's. The order stays.
func Few(checks []Check) []Shown {
	type kind struct {
		name  string
		level Level
	}
	seen, last := map[kind]int{}, map[kind]int{}
	var all []Shown
	for _, c := range checks {
		k := kind{c.Name, c.Level}
		if c.Gateway != "" {
			if seen[k]++; seen[k] > fewAlike {
				all[last[k]].More++
				continue
			}
			last[k] = len(all)
		}
		all = append(all, Shown{Check: c})
	}
	return all
}
