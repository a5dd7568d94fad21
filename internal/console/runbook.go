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
	Text     template.HTML
	Sections []heading
}

// runbookText is the runbook as HTML, and runbookSections its sections. The page is embedded, so they are made
// once.
var (
	runbookText     = sync.OnceValue(func() template.HTML { return htmlOf(docs.Runbook) })
	runbookSections = sync.OnceValue(func() []heading { return headingsOf(docs.Runbook) })
)

func (c *Console) runbook(w http.ResponseWriter, r *http.Request) error {
	c.show(w, r, http.StatusOK, "runbook.html", &runbookView{base: base{Title: "Runbook"}, Text: runbookText(), Sections: runbookSections()})
	return nil
}

// runbookLink returns the console's own page of a section of the runbook.
func runbookLink(section string) string {
	return strings.Replace(section, "docs/runbook.md", "/runbook", 1)
}
