package cli

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// cell is one field of a table.
type cell struct {
	text   string
	colour colour
}

// column is a table's column.
type column struct {
	title string
	// right aligns it right, as numbers are; such a column is never shortened.
	right bool
	// fixed says that a shortened cell would mislead.
	fixed bool
	// drop says in which turn the column is left out where the table is too
	// wide: the highest first, 0 never.
	drop int
	// none is what a cell says that says nothing; a column of such cells only is
	// left out.
	none string
}

// table is text in columns. Widths are counted in runes.
type table struct {
	columns []column
	rows    [][]cell
	// totals says that the last row sums the others: a rule stands above it.
	totals bool
}

const (
	gap      = "  "
	ellipsis = "…"
	// minColumn is the width below which a column is not shortened.
	minColumn = 8
)

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

// texts makes uncoloured cells.
func texts(s ...string) []cell {
	cells := make([]cell, len(s))
	for i, text := range s {
		cells[i] = cell{text: text}
	}
	return cells
}

// lines lays the table out for s, cut to its width.
func (t *table) lines(s stream) []string {
	limit := s.width()
	t = t.fit(limit)
	widths, _ := t.widths(limit)
	title := make([]cell, len(t.columns))
	for i, c := range t.columns {
		title[i] = cell{c.title, bold}
	}
	lines := []string{t.line(s, title, widths, limit)}
	for i, row := range t.rows {
		if t.totals && i == len(t.rows)-1 {
			rule := total(widths)
			if limit > 0 {
				rule = min(rule, limit)
			}
			lines = append(lines, s.paint(dim, strings.Repeat("─", rule)))
		}
		lines = append(lines, t.line(s, row, widths, limit))
	}
	return lines
}

// fit returns the table without the columns that say nothing, and without
// those that can be done without until the rest fits.
func (t *table) fit(limit int) *table {
	out := t
	for i := len(t.columns) - 1; i > 0; i-- {
		if len(t.rows) > 0 && t.empty(i) {
			out = out.without(i)
		}
	}
	for {
		if _, fits := out.widths(limit); fits {
			return out
		}
		last := 0
		for i, c := range out.columns {
			if c.drop > out.columns[last].drop {
				last = i
			}
		}
		if out.columns[last].drop == 0 {
			return out
		}
		out = out.without(last)
	}
}

func (t *table) empty(i int) bool {
	for _, row := range t.rows {
		if row[i].text != "" && row[i].text != t.columns[i].none {
			return false
		}
	}
	return true
}

func (t *table) without(i int) *table {
	out := &table{totals: t.totals, columns: slices.Delete(slices.Clone(t.columns), i, i+1)}
	for _, row := range t.rows {
		out.add(slices.Delete(slices.Clone(row), i, i+1)...)
	}
	return out
}

// widths gives each column what it needs, then takes from the widest that may
// be shortened until the whole fits the limit or nothing can be taken.
func (t *table) widths(limit int) (w []int, fits bool) {
	w = make([]int, len(t.columns))
	for i, c := range t.columns {
		w[i] = utf8.RuneCountInString(c.title)
	}
	for _, row := range t.rows {
		for i, c := range row {
			w[i] = max(w[i], utf8.RuneCountInString(safe(c.text)))
		}
	}
	for limit > 0 && total(w) > limit {
		widest := -1
		for i, c := range t.columns {
			if !c.right && !c.fixed && w[i] > minColumn && (widest < 0 || w[i] > w[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return w, false
		}
		w[widest]--
	}
	return w, true
}

// total is the width of a line.
func total(widths []int) int {
	n := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		n += w
	}
	return n
}

func (t *table) line(s stream, row []cell, widths []int, limit int) string {
	var b strings.Builder
	used := 0
	last := len(row) - 1
	for last > 0 && row[last].text == "" {
		last--
	}
	for i, c := range row[:last+1] {
		text := cut(safe(c.text), widths[i])
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
		if i > 0 {
			b.WriteString(gap)
			used += len(gap)
		}
		room := widths[i]
		if limit > 0 {
			room = limit - used
		}
		switch {
		case room <= 0 && limit > 0:
			return strings.TrimRight(b.String(), " ")
		case room < widths[i]:
			b.WriteString(s.paint(c.colour, cut(text, room)))
			return strings.TrimRight(b.String(), " ")
		case t.columns[i].right:
			b.WriteString(pad + s.paint(c.colour, text))
		case i == last:
			b.WriteString(s.paint(c.colour, text))
		default:
			b.WriteString(s.paint(c.colour, text) + pad)
		}
		used += widths[i]
	}
	return b.String()
}

// cut shortens text to width runes, the last of them an ellipsis.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width <= 1 {
		return ellipsis[:len(ellipsis)*max(width, 0)]
	}
	r := []rune(text)
	return string(r[:width-1]) + ellipsis
}
