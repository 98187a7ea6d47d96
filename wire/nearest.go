package wire

import "strings"

// nearest returns the known name that s most likely means, or "".
func nearest(s string, known []string) string {
	const limit = 40
	if len(s) > limit {
		return ""
	}
	want := fold(s)
	best, bestDist := "", len(want)/3+2
	for _, k := range known {
		if d := distance(want, fold(k)); d < bestDist {
			best, bestDist = k, d
		}
	}
	return best
}

// fold makes maxTokens, max_tokens and MAX-TOKENS one.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(s))
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, diag+1)
		}
	}
	return row[len(b)]
}
