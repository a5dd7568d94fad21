package main

import (
	"bytes"
	"fmt"
	"slices"
)

// ours are the rates of the programs themselves.
var ours = []string{enqueueName, againName, parkName, replayName, sendName}

// plot draws the rates as bars, with a line from the slowest run to the quickest.
func (r results) plot() []byte {
	const left, width, step = 390, 520, 34
	var out bytes.Buffer
	var top float64
	measured := slices.DeleteFunc(slices.Clone(ofRates), func(name string) bool { return len(r[name]) == 0 })
	for _, name := range measured {
		_, _, most := spreadOf(r[name])
		top = max(top, most)
	}
	x := func(rate float64) float64 { return left + rate/top*width }
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1020 %d" font-family="sans-serif" font-size="13">`+"\n", 30+step*len(measured))
	fmt.Fprintln(&out, `<rect width="100%" height="100%" fill="white"/>`)
	for i, name := range measured {
		median, least, most := spreadOf(r[name])
		y := 16 + step*i
		colour := "#9aa5b1"
		if slices.Contains(ours, name) {
			colour = "#2563eb"
		}
		fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-10, y+15, name)
		fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%.1f" height="20" fill="%s"/>`+"\n", left, y, x(median)-left, colour)
		fmt.Fprintf(&out, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="black"/>`+"\n", x(least), x(most), y+10, y+10)
		fmt.Fprintf(&out, `<text x="%.1f" y="%d">%.0f/s</text>`+"\n", x(most)+8, y+15, median)
	}
	fmt.Fprintln(&out, "</svg>")
	return out.Bytes()
}
