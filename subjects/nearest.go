package subjects

import "strings"

// Nearest returns the candidate whose spelling is closest to name, or "" when
// none is within three edits (or half the name's length, for short names).
// Errors about unknown names use it for their remedy.
func Nearest(name string, candidates []string) string {
	limit := min(3, (len(name)+1)/2)
	best, bestDist := "", limit+1
	low := strings.ToLower(name)
	for _, c := range candidates {
		if d := editDistance(low, strings.ToLower(c), bestDist); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// editDistance is the Levenshtein distance of a and b in bytes, or bound when
// it is not below bound.
func editDistance(a, b string, bound int) int {
	const longest = 256
	if len(a) > longest || len(b) > longest || len(a)-len(b) >= bound || len(b)-len(a) >= bound {
		return bound
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return min(row[len(b)], bound)
}
