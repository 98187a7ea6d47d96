package subjects

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// modelForms has the spellings of models that providers, programs and people
// use, by the name they are one row under.
var modelForms = map[string][]string{
	"claude-sonnet-4.5": {
		"claude-sonnet-4-5", "claude-sonnet-4.5", "Claude Sonnet 4.5", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5@20250929",
		"anthropic/claude-sonnet-4-5", "anthropic/claude-sonnet-4.5", "claude-sonnet-4-5-latest", "claude-sonnet-4-5[1m]",
		"claude-sonnet-4-5-20250929[1m]", " Claude\tSonnet  4.5\n",
	},
	"claude-haiku-4.5":             {"claude-haiku-4-5", "claude-haiku-4.5", "claude-haiku-4-5-20251001", "Claude Haiku 4.5"},
	"claude-opus-4":                {"claude-opus-4-20250514", "claude-opus-4-0", "claude-opus-4.0", "claude-opus-4-0-latest", "Claude Opus 4"},
	"claude-3.5-sonnet":            {"claude-3-5-sonnet-20241022", "claude-3-5-sonnet-latest", "Claude 3.5 Sonnet"},
	"claude-3.5-haiku":             {"claude-3-5-haiku-latest", "claude-3-5-haiku@20241022"},
	"claude-3-opus":                {"claude-3-opus-20240229", "claude-3.0-opus"},
	"claude-opus-5":                {"claude-opus-5", "claude-opus-5[1m]", "Claude Opus 5"},
	"claude-opus-5.5":              {"claude-opus-5-5", "claude-opus-5.5"},
	"vendor/claude-haiku-4.5":      {"vendor/claude-haiku-4-5", "vendor/claude-haiku-4-5-20251001"},
	"sonnet":                       {"sonnet", "Sonnet"},
	"gpt-4.1":                      {"gpt-4.1", "gpt-4.1-2025-04-14", "GPT-4.1", "openai/gpt-4.1", "openai/gpt-4.1-2025-04-14"},
	"gpt-4.1-mini":                 {"openai/gpt-4.1-mini", "gpt-4.1-mini-2025-04-14", "GPT-4.1 mini"},
	"gpt-4o":                       {"gpt-4o-2024-08-06", "gpt-4o-2024-11-20", "GPT-4o"},
	"gpt-4o-mini":                  {"gpt-4o-mini-2024-07-18"},
	"gpt-5.4":                      {"gpt-5.4", "gpt-5.4-2026-03-05"},
	"o4-mini":                      {"o4-mini", "openai/o4-mini", "o4-mini-2025-04-16"},
	"gpt-4-0613":                   {"gpt-4-0613"},
	"gpt-4-32k":                    {"gpt-4-32k"},
	"chatgpt-4o-latest":            {"chatgpt-4o-latest", "openai/chatgpt-4o-latest"},
	"openai/gpt-oss-120b":          {"openai/gpt-oss-120b", "OpenAI/GPT-OSS-120B"},
	"gpt-oss:120b":                 {"gpt-oss:120b"},
	"llama-3.3-70b-versatile":      {"llama-3.3-70b-versatile"},
	"meta/llama-3.3-70b":           {"meta/Llama-3.3-70B"},
	"gemini-2.5-pro":               {"gemini-2.5-pro", "models/gemini-2.5-pro", "google/gemini-2.5-pro", "Gemini 2.5 Pro"},
	"gemini-2.0-flash":             {"gemini-2.0-flash", "gemini-2.0-flash-001", "models/gemini-2.0-flash-001"},
	"gemini-2.5-flash-lite":        {"gemini-2.5-flash-lite"},
	"gemini-flash-latest":          {"gemini-flash-latest", "models/gemini-flash-latest"},
	"gemma-3-27b-it":               {"models/gemma-3-27b-it", "gemma-3-27b-it"},
	"ai/llama3.2":                  {"ai/llama3.2", "ai/llama3.2:latest"},
	"ai/llama3.2:3b-q4_k_m":        {"ai/llama3.2:3B-Q4_K_M"},
	"llama3.2":                     {"llama3.2", "llama3.2:latest"},
	"llama3.2:1b":                  {"llama3.2:1b"},
	"models/llama-3.gguf":          {"models/llama-3.gguf"},
	"model-20259999":               {"model-20259999"},
	"model-001":                    {"model-001"},
	"x":                            {"x-2024-08-06-2024-08-06"},
	"a-b":                          {"  a \t b\n", "A B"},
	"":                             {"", " \n"},
	"-20250101":                    {"-20250101"},
	":latest":                      {":latest"},
	"gemini-2.5-pro-preview-05-06": {"gemini-2.5-pro-preview-05-06"},
}

func TestCanonicalModel(t *testing.T) {
	for want, forms := range modelForms {
		for _, form := range forms {
			if got := CanonicalModel(form); got != want {
				t.Errorf("CanonicalModel(%q) = %q, want %q", form, got, want)
			}
		}
		if again := CanonicalModel(want); again != want {
			t.Errorf("%q, then %q", want, again)
		}
	}
}

// TestCanonicalModelOfAnything: names that nobody gives are bounded, valid text,
// and stay as they come out.
func TestCanonicalModelOfAnything(t *testing.T) {
	for _, in := range []string{
		strings.Repeat("é", 300), strings.Repeat("Ⱥ", 200), "claude-" + strings.Repeat("1-", 200), strings.Repeat("\xff", 300),
		"claude-4-5-6-7", "claude-1.0.0-0-latest", "a\xffb", "claude-4-0-0", "İ", strings.Repeat(":latest", 40),
	} {
		checkCanonical(t, in)
	}
}

func checkCanonical(t *testing.T, in string) {
	t.Helper()
	one := CanonicalModel(in)
	if two := CanonicalModel(one); two != one {
		t.Fatalf("%q, then %q, then %q", in, one, two)
	}
	if len(one) > MaxName || len(one) > len(in) || !utf8.ValidString(one) {
		t.Fatalf("%q gives %q", in, one)
	}
	if i := strings.IndexFunc(one, func(r rune) bool { return r <= ' ' || r >= 0x7f && r <= 0xa0 || r >= 'A' && r <= 'Z' }); i >= 0 {
		t.Fatalf("%q gives %q, with %q in it", in, one, one[i:])
	}
}

func FuzzCanonicalModel(f *testing.F) {
	for _, forms := range modelForms {
		for _, form := range forms {
			f.Add(form)
		}
	}
	for _, s := range []string{"a/claude-4-0-latest-20250929", "claude-4-5-6-7", "claude-1.0.0-0-latest", "models/models/gemini-a-001-002", "\xff \x00"} {
		f.Add(s)
	}
	f.Fuzz(checkCanonical)
}

func BenchmarkCanonicalModel(b *testing.B) {
	for _, in := range []string{"claude-sonnet-4.5", "claude-sonnet-4-5-20250929", "openai/gpt-oss-120b", "Claude Sonnet 4.5"} {
		b.Run(strings.ReplaceAll(in, "/", "_"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				CanonicalModel(in)
			}
		})
	}
}
