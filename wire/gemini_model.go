package wire

import (
	"strconv"
	"strings"
)

// geminiModel is what a model's id tells of the requests that the model takes.
// The API has one form for all of them, and refuses with 400 what a model lacks;
// where that merely steers, it is left out here, with a warning. The rules are
// those of ai.google.dev (thinking, thought signatures, "what's new" of each
// version), as of November 2026. An id that tells nothing (gemma-…, a tuned
// model) has version 0: what only some versions refuse is sent.
type geminiModel struct {
	id           string
	major, minor int
	latest       bool // an alias of the newest, such as gemini-flash-latest
	pro          bool
	flash, lite  bool
}

// geminiNewest stands for the version of an alias.
const geminiNewest = 1 << 16

// geminiModelOf reads an id such as gemini-2.5-flash-lite, gemini-4-argon or
// models/gemini-pro-latest.
func geminiModelOf(id string) geminiModel {
	m := geminiModel{id: id}
	base := strings.ToLower(id[strings.LastIndexByte(id, '/')+1:])
	rest, ok := strings.CutPrefix(base, "gemini-")
	if !ok {
		return m
	}
	version, _, _ := strings.Cut(rest, "-")
	major, minor, _ := strings.Cut(version, ".")
	if n, err := strconv.ParseUint(major, 10, 8); err == nil {
		m.major = int(n)
		n, _ = strconv.ParseUint(minor, 10, 8)
		m.minor = int(n)
	}
	if m.major == 0 && strings.HasSuffix(rest, "-latest") {
		m.latest, m.major = true, geminiNewest
	}
	m.pro = strings.Contains(rest, "pro")
	m.lite = strings.Contains(rest, "flash-lite")
	m.flash = strings.Contains(rest, "flash") && !m.lite
	return m
}

func (m *geminiModel) from(major, minor int) bool {
	return m.major > major || m.major == major && m.minor >= minor
}

// signs reports whether a function call in a request must carry a thought
// signature: from Gemini 3 on.
func (m *geminiModel) signs() bool { return m.from(3, 0) }

// penalises reports whether the model takes presence and frequency penalties:
// those before 2.5 do, all others answer 400 "Penalty is not enabled".
func (m *geminiModel) penalises() bool { return m.from(1, 0) && !m.from(2, 5) }

// fixed reports whether the model has its sampling fixed (it ignores temperature
// and topP) and refuses a prompt that ends with the model's own turn: 3.5
// Flash-Lite, and all from 3.6 on.
func (m *geminiModel) fixed() bool { return m.from(3, 6) || m.from(3, 5) && m.lite }

// plansJSON reports whether tools and a JSON format may come together: from
// Gemini 3 on.
func (m *geminiModel) plansJSON() bool { return m.major == 0 || m.from(3, 0) }

// Budgets of thinking tokens for the words of effort, as the API's own
// OpenAI-compatible face translates them for Gemini 2.5. geminiLeast is the least
// that 2.5 Pro takes: it cannot be told not to think.
const (
	geminiBudgetLow    = 1_024
	geminiBudgetMedium = 8_192
	geminiBudgetHigh   = 24_576
	geminiLeast        = 128
)

// budget is the thinkingBudget of Gemini 2.5 for an effort. exact is false where
// the model has no such step and the nearest was taken; ok is false for a word
// that is none.
func (m *geminiModel) budget(effort string) (n int64, exact, ok bool) {
	switch effort {
	case "none":
		if m.pro {
			return geminiLeast, false, true
		}
		return 0, true, true
	case "minimal", "low":
		return geminiBudgetLow, true, true
	case "medium":
		return geminiBudgetMedium, true, true
	case "high":
		return geminiBudgetHigh, true, true
	case "xhigh", "max":
		return geminiBudgetHigh, false, true
	}
	return 0, false, false
}

// level is the thinkingLevel of Gemini 3 and later for an effort; see budget.
// None of them can be told not to think. MINIMAL is there on Flash before 3.7 and
// on Flash-Lite; the first Pro (3.0) has no MEDIUM.
func (m *geminiModel) level(effort string) (level string, exact, ok bool) {
	least := "LOW"
	if m.lite || m.flash && !m.from(3, 7) {
		least = "MINIMAL"
	}
	switch effort {
	case "none":
		return least, false, true
	case "minimal":
		return least, true, true
	case "low":
		return "LOW", true, true
	case "medium":
		if m.pro && !m.from(3, 1) {
			return "HIGH", true, true
		}
		return "MEDIUM", true, true
	case "high":
		return "HIGH", true, true
	case "xhigh", "max":
		return "HIGH", false, true
	}
	return "", false, false
}
