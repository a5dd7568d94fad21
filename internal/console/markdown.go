package console

import (
	"html"
	"html/template"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"spillway/docs"
)

// htmlOf converts the subset of Markdown used in our pages to HTML: headings, paragraphs, lists, tables,
// commands indented by four, and inline code, bold and links. A heading's id is the one that GitHub gives it.
// Only links within the page are kept, because the console has no other pages of Markdown.
func htmlOf(text string) template.HTML {
	var w page
	for line := range strings.Lines(text) {
		w.line(strings.TrimRight(line, "\n"))
	}
	w.begin("")
	return template.HTML(w.out.String()) //nolint:gosec // all text of the page is escaped, and the page is part of the program
}

// page is a page being converted.
type page struct {
	out  strings.Builder
	open string // the open element; empty: none
	rows int    // of the open table
}

// begin closes the open element and opens another, unless it is the same.
func (w *page) begin(element string) {
	if w.open == element {
		return
	}
	switch w.open {
	case "":
	case "li":
		w.out.WriteString("</li></ul>\n")
	case "oli":
		w.out.WriteString("</li></ol>\n")
	case "table":
		w.out.WriteString("</tbody></table></div>\n")
	default:
		w.out.WriteString("</" + w.open + ">\n")
	}
	switch w.open = element; element {
	case "", "h":
		w.open = ""
	case "li":
		w.out.WriteString("<ul>")
	case "oli":
		w.out.WriteString("<ol>")
	case "table":
		w.rows = 0
		w.out.WriteString(`<div class="wide" tabindex="0" role="group" aria-label="Table"><table role="table">`)
	case "pre":
		w.out.WriteString(`<pre tabindex="0">`)
	default:
		w.out.WriteString("<" + element + ">")
	}
}

var (
	itemLine     = regexp.MustCompile(`^(-|\d+\.) `)
	headingLine  = regexp.MustCompile(`^(#+) (.*)$`)
	notInAnchors = regexp.MustCompile(`[^\w -]`)
)

func (w *page) line(line string) {
	heading, item := headingLine.FindStringSubmatch(line), itemLine.FindString(line)
	switch {
	case line == "":
		w.begin("")
	case heading != nil:
		w.begin("")
		w.heading(len(heading[1]), heading[2])
	case strings.HasPrefix(line, "    ") && (w.open == "" || w.open == "pre"):
		w.begin("pre")
		w.out.WriteString(html.EscapeString(line[4:]) + "\n")
	case strings.HasPrefix(line, "| "):
		w.begin("table")
		w.row(line)
	case strings.HasPrefix(line, "|-"): // between a table's head and its rows
	case item != "":
		w.item(item, line)
	case w.open == "":
		w.begin("p")
		w.out.WriteString(inline(line))
	default: // the paragraph or item continues
		w.out.WriteString("\n" + inline(strings.TrimSpace(line)))
	}
}

func (w *page) heading(level int, text string) {
	tag, id := "h2", anchor(text)
	if level == 1 {
		tag = "h1"
	}
	w.out.WriteString("<" + tag + ` id="` + id + `">` + inline(text) + "</" + tag + ">\n")
}

// heading is a section of a page.
type heading struct{ ID, Title string }

// headingsOf returns the sections of a page, in order, without the page's own title.
func headingsOf(text string) (all []heading) {
	for line := range strings.Lines(text) {
		if h := headingLine.FindStringSubmatch(strings.TrimRight(line, "\n")); h != nil && len(h[1]) > 1 {
			all = append(all, heading{anchor(h[2]), h[2]})
		}
	}
	return all
}

// anchor returns the id of a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

func (w *page) item(mark, line string) {
	list := "oli"
	if mark == "- " {
		list = "li"
	}
	if w.open == list {
		w.out.WriteString("</li>")
	}
	w.begin(list)
	w.out.WriteString("\n<li>" + inline(strings.TrimPrefix(line, mark)))
}

func (w *page) row(line string) {
	cell, before, after := `td role="cell"`, `<tr role="row">`, "</tr>\n" // on a phone the stylesheet changes the tables' display, so roles are explicit
	if w.rows++; w.rows == 1 {
		cell, before, after = `th role="columnheader" scope="col"`, `<thead role="rowgroup"><tr role="row">`, "</tr></thead>\n"+`<tbody role="rowgroup">`
	}
	w.out.WriteString(before)
	for _, text := range strings.Split(strings.Trim(line, "| "), " | ") {
		w.out.WriteString("<" + cell + ">" + inline(text) + "</" + cell[:2] + ">")
	}
	w.out.WriteString(after)
}

var (
	bold  = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	links = regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)
)

// inline converts the text of a line. Code is not converted further.
func inline(text string) string {
	var out strings.Builder
	for i, part := range strings.Split(text, "`") {
		part = html.EscapeString(part)
		if i%2 == 1 {
			out.WriteString("<code>" + part + "</code>")
			continue
		}
		part = links.ReplaceAllStringFunc(part, func(link string) string {
			m := links.FindStringSubmatch(link)
			if strings.HasPrefix(m[2], "#") {
				return `<a href="` + m[2] + `">` + m[1] + "</a>"
			}
			return m[1]
		})
		out.WriteString(bold.ReplaceAllString(part, "<b>$1</b>"))
	}
	return out.String()
}

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
