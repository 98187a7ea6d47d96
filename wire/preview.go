package wire

import (
	"strings"
	"unicode"

	"github.com/tidwall/gjson"
)

const (
	// previewRunes is the length of a prompt preview.
	previewRunes = 120
	// previewScan is how much of a text is decoded for its preview, previewMost
	// how much where that was not enough (tags and space are not shown).
	previewScan = 512
	previewMost = 4096
	// imageTokens is what an image counts for where nobody reports its tokens.
	imageTokens = 800
)

// PromptPreview returns the first 120 characters of the last user message's
// text, with the XML tags that wrap it stripped and white space squeezed. It
// decodes the message's beginning only.
func (r *Request) PromptPreview() string {
	if r.asked.isString() {
		return preview(r.asked)
	}
	for _, p := range r.asked.items() {
		if p.get("type").str() != "text" {
			continue
		}
		if s := preview(p.get("text")); s != "" {
			return s
		}
	}
	return ""
}

// beginning decodes the first bytes of a JSON string.
func beginning(v raw, limit int) string {
	s := v.inner()
	if len(s) > limit {
		s = s[:limit]
		if i := strings.LastIndexByte(s, '\\'); i > len(s)-12 {
			s = strings.TrimRight(s[:i], `\`) // an escape, or a pair of them, may be cut
		}
		s = strings.ToValidUTF8(s, "")
	}
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	return gjson.Parse(`"` + s + `"`).Str
}

func preview(v raw) string {
	s, n := squeeze(stripTags(beginning(v, previewScan)))
	if n < previewRunes && len(v) > previewScan {
		s, _ = squeeze(stripTags(beginning(v, previewMost)))
	}
	return s
}

// squeeze returns the first characters of s, each white space a blank, and
// their number.
func squeeze(s string) (string, int) {
	var b strings.Builder
	b.Grow(min(len(s), 2*previewRunes))
	n, gap := 0, false
	for _, c := range s {
		plain := ' ' < c && c < 0x7f // as most are
		if !plain && (unicode.IsSpace(c) || unicode.IsControl(c)) {
			gap = n > 0
			continue
		}
		if gap {
			if n++; n >= previewRunes {
				break
			}
			b.WriteByte(' ')
			gap = false
		}
		b.WriteRune(c)
		if n++; n == previewRunes {
			break
		}
	}
	return b.String(), n
}

// stripTags takes opening tags off the front, and the closing ones off the end.
func stripTags(s string) string {
	s = strings.TrimSpace(s)
	for {
		rest, ok := cutTag(s)
		if !ok {
			break
		}
		s = strings.TrimSpace(rest)
	}
	for strings.HasSuffix(s, ">") {
		i := strings.LastIndexByte(s, '<')
		if i < 0 || !strings.HasPrefix(s[i:], "</") || !tagName(s[i+2:len(s)-1]) {
			break
		}
		s = strings.TrimSpace(s[:i])
	}
	return s
}

// cutTag cuts one tag, <name …> or </name>, off the front.
func cutTag(s string) (rest string, ok bool) {
	if !strings.HasPrefix(s, "<") {
		return s, false
	}
	end := strings.IndexByte(s, '>')
	if end < 0 || end > 256 {
		return s, false
	}
	name, _, _ := strings.Cut(strings.Trim(s[1:end], "/"), " ")
	return s[end+1:], tagName(name)
}

func tagName(s string) bool {
	for i, c := range s {
		if !unicode.IsLetter(c) && (i == 0 || !unicode.IsDigit(c) && !strings.ContainsRune("_-:.", c)) {
			return false
		}
	}
	return s != ""
}

// EstimateTokens is the tokens of a text where nobody has counted them: a
// quarter of its bytes, rounded up.
func EstimateTokens(text string) int64 { return quarter(int64(len(text))) }

func quarter(n int64) int64 { return (n + 3) / 4 }

// EstimateInput is the tokens of the prompt where nobody has counted them: a
// quarter of the bytes of its texts and tools, and a flat 800 for each image.
func (r *Request) EstimateInput() int64 {
	var bytes, images int64
	body := view(r.Body)
	for f := range body.fields() {
		switch f.Key {
		case "messages":
			for _, m := range f.Value.items() {
				b, i := weigh(m)
				bytes, images = bytes+b, images+i
			}
		case "tools", "functions", "responseFormat", "response_format":
			bytes += int64(len(f.Value))
		}
	}
	return quarter(bytes) + images*imageTokens
}

// weigh counts the bytes of text and the images of one message.
func weigh(m raw) (bytes, images int64) {
	for f := range m.fields() {
		switch {
		case f.Key == "content" && f.Value.isString():
			bytes += int64(f.Value.textLen())
		case f.Key == "content":
			for _, p := range f.Value.items() {
				if kind := p.get("type").str(); kind == "image" || kind == "image_url" {
					images++
				}
				bytes += int64(p.get("text").textLen())
			}
		case f.Key == "toolCalls" || f.Key == "tool_calls" || f.Key == "function_call":
			bytes += int64(len(f.Value))
		}
	}
	return bytes, images
}
