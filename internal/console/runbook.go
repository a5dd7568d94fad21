package console

import (
	"html/template"
	"net/http"
	"strings"
	"sync"

	"spillway/docs"
)

type runbookView struct {
	base
	Text template.HTML
}

// runbookText is the runbook as HTML. The page is part of the program, so it is made once.
var runbookText = sync.OnceValue(func() template.HTML { return htmlOf(docs.Runbook) })

func (c *Console) runbook(w http.ResponseWriter, r *http.Request) error {
	c.show(w, r, http.StatusOK, "runbook.html", &runbookView{base: base{Title: "Runbook"}, Text: runbookText()})
	return nil
}

// runbookLink is the console's own page of a section of the runbook.
func runbookLink(section string) string {
	return strings.Replace(section, "docs/runbook.md", "/runbook", 1)
}
