package cli

import (
	"encoding/csv"
	"fmt"
	"io"
)

// CSV writes rows for spreadsheets and programs, after a header: what Table writes to a pipe, with commas and
// quotes (RFC 4180). A text that a spreadsheet would take for a formula gets a ' before it.
type CSV struct {
	out   *csv.Writer
	cells Table
}

// NewCSV returns a CSV whose header has been written.
func NewCSV(out io.Writer, titles ...string) (*CSV, error) {
	c := &CSV{out: csv.NewWriter(out)}
	cells := make([]any, len(titles))
	for i, title := range titles {
		cells[i] = title
	}
	return c, c.Row(cells...)
}

// Row writes one row.
func (c *CSV) Row(cells ...any) error {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = c.cells.cell(cell)
	}
	return unwritten(c.out.Write(row))
}

// Flush writes buffered rows.
func (c *CSV) Flush() error {
	c.out.Flush()
	return unwritten(c.out.Error())
}

func unwritten(err error) error {
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
