package testkit

// Torn counts the connections of a line that have lost something in a freeze.
func (l *Line) Torn() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.wires {
		if w.torn.Load() {
			n++
		}
	}
	return n
}
