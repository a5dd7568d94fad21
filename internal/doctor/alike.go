package doctor

// fewAlike is up to how many checks that are alike each stands for itself.
const fewAlike = 3

// Shown is a check for people, and how many others of that name and level at other gateways are left out behind it.
type Shown struct {
	Check
	More int
}

// Few leaves the first three of the checks of each name and level at gateways, so that thousands of gateways do not hide what is wrong with one. The order stays.
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
