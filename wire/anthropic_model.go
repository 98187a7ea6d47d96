package wire

import (
	"strconv"
	"strings"
)

// claude is one model of Anthropic's, as far as its requests differ from those
// for another: read off its id, so that a snapshot's date, a publisher in front
// or the point in 4.5 do not matter. An id that is not Claude's has no family;
// it belongs to a server that speaks the same wire, and is taken to accept what
// the API's first models did.
//
// The rules are from the vendor's pages as of 2026-11: Models overview, Effort,
// Mid-conversation system messages, and the migration guides of Claude 4.6, Opus
// 4.7, Opus 5.5, Sonnet 5, Sonnet 5.5, Haiku 5.5 and Fable 5.1. A version that is newer
// than those is taken to be like the newest known one of its family.
type claude struct {
	id     string
	family string // opus, sonnet, haiku, fable, mythos, … ; "" = not Claude
	// version is 45 for 4.5; 0 = not said.
	version int
}

func readClaude(id string) claude {
	c := claude{id: id}
	base := CanonicalModel(id)
	base = base[strings.LastIndexByte(base, '/')+1:]
	rest, ok := strings.CutPrefix(base, "claude-")
	if !ok {
		return c
	}
	c.family = "claude"
	for _, word := range strings.Split(rest, "-") {
		major, minor, _ := strings.Cut(word, ".")
		if m, err := strconv.Atoi(major); err == nil && m < 100 {
			if c.version == 0 {
				n, _ := strconv.Atoi(minor)
				c.version = 10*m + min(n, 9)
			}
			continue
		}
		if c.family == "claude" && word != "" {
			c.family = word
		}
	}
	return c
}

// from reports whether the model is of the given versions or newer ones. A name
// without a version is the newest; the families that are not named here began
// with all that is asked for.
func (c claude) from(opus, sonnet, haiku int) bool {
	first := 50
	switch c.family {
	case "":
		return false
	case "opus":
		first = opus
	case "sonnet":
		first = sonnet
	case "haiku":
		first = haiku
	}
	return c.version >= first || c.version == 0 && first < never
}

// never is the version of what no model of a family does.
const never = 1000

// sampling reports whether temperature and top_p are accepted. Newer models
// answer them with 400.
func (c claude) sampling() bool { return !c.from(47, 50, 55) }

// thinks reports whether the model thinks when the request does not say.
func (c claude) thinks() bool { return c.from(50, 50, 55) }

// forcible reports whether it can be made to call a tool. Where thinking cannot
// be switched off, tool_choice any and tool are answered with 400.
func (c claude) forcible() bool { return !c.from(55, 55, never) }

// prefill reports whether a conversation may end with the assistant's turn, for
// the model to go on from there. Newer models answer that with 400.
func (c claude) prefill() bool { return !c.from(46, 46, 55) }

// systemTurns reports whether a system message is accepted among the others, and
// heeded: Sonnet 5 accepts it and does not heed it.
func (c claude) systemTurns() bool { return c.from(48, 55, 55) }

// efforts are the words that output_config.effort takes, weakest first.
func (c claude) efforts() []string {
	switch {
	case c.from(47, 50, 55):
		return []string{"low", "medium", "high", "xhigh", "max"}
	case c.from(46, 46, never):
		return []string{"low", "medium", "high", "max"}
	case c.from(45, never, never):
		return []string{"low", "medium", "high"}
	}
	return nil
}

// The bounds of max_tokens, in tokens: see maxOutput.
const (
	defaultMaxTokens = 32_000
	output3          = 4_096   // Claude 3
	output35         = 8_192   // Claude 3.5
	output4          = 32_000  // Opus 4 and 4.1
	output45         = 64_000  // Claude 3.7, Sonnet 4, and 4.5
	outputNow        = 128_000 // 4.6 and everything since
)

// maxOutput is the most that the model writes, in tokens, by the Models overview;
// a request for more is answered with 400. 0 = not known.
func (c claude) maxOutput() int64 {
	switch v := c.version; {
	case c.family == "" || v == 0 && c.family == "claude":
		return 0
	case v > 0 && v < 35:
		return output3
	case v == 35 || v == 36:
		return output35
	case c.family == "opus" && v >= 40 && v < 45:
		return output4
	case v > 0 && v < 46:
		return output45
	}
	return outputNow
}

// maxTokens is what max_tokens says where the caller has no bound; the API wants
// one. It is 32,000 tokens, or all that an older model can write: Claude Code's
// own bound for the models that have 64,000, enough for a long answer with the
// thinking that counts as output, and written within Sluice's default deadline.
func (c claude) maxTokens() int64 {
	if most := c.maxOutput(); most > 0 {
		return min(most, defaultMaxTokens)
	}
	return defaultMaxTokens
}
