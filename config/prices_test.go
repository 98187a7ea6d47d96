package config

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// flat is a price without a second one for long prompts.
func flat(input, output, read, write Rate, noted string) Price {
	return Price{Rates: Rates{input, output, read, write}, Long: unknownRates(), Noted: noted}
}

func TestPrices(t *testing.T) {
	c := mustLoad(t, `
providers:
  lab-gpu: {api: openai, baseUrl: "http://127.0.0.1:9/v1"}
prices:
  noted: 2026-11-30
  claude-haiku-4-5: {input: 0.9, output: 4}
  "Claude Haiku 5.5": {input: 0.1, output: 0.4, noted: "2026-01-02"}
  anthropic/Claude Sonnet 4.5: {input: 2, output: 1.000001, cacheRead: 0, cache_write: 10000}
  openai/gpt-5.4-2026-03-05: {input: 0, output: 0}
  gemini/models/gemini-2.5-pro: unknown
  groq/openai/gpt-oss-120b: {input: "${IN:-0.25}", output: 1, long_prompts: {over_tokens: 10, input: 3, output: 4, cache_read: 5}}
  lab-gpu/gemma: {input: 1, output: 2}
  outside/gemma:7b: {input: 3, output: 4}
`, "IN=0.125")
	long := flat(125_000, 1_000_000, UnknownRate, UnknownRate, "2026-11-30")
	long.LongOver, long.Long = 10, Rates{3_000_000, 4_000_000, 5_000_000, UnknownRate}
	for _, tc := range []struct {
		provider, model string
		want            Price
		known           bool
	}{
		{"anthropic", "claude-haiku-4.5", flat(1_000_000, 5_000_000, 100_000, 1_250_000, "2026-10-24"), true}, // its own counts first
		{"custom", "claude-haiku-4.5", flat(900_000, 4_000_000, UnknownRate, UnknownRate, "2026-11-30"), true},
		{"custom", "claude-haiku-5.5", flat(100_000, 400_000, UnknownRate, UnknownRate, "2026-01-02"), true},
		{"anthropic", "claude-sonnet-4.5", flat(2_000_000, 1_000_001, 0, 10_000_000_000, "2026-11-30"), true},
		{"openai", "gpt-5.4", flat(0, 0, UnknownRate, UnknownRate, "2026-11-30"), true}, // the default's long price is gone with it
		{"gemini", "gemini-2.5-pro", Price{}, false},
		{"groq", "openai/gpt-oss-120b", long, true},
		{"openai", "openai/gpt-oss-120b", Price{}, false},
		{"lab-gpu", "gemma", flat(1_000_000, 2_000_000, UnknownRate, UnknownRate, "2026-11-30"), true},
		{"ollama", "gemma", Price{}, false},
		{"outside", "gemma:7b", flat(3_000_000, 4_000_000, UnknownRate, UnknownRate, "2026-11-30"), true},
		{"anthropic", "claude-none", Price{}, false},
		{"", "", Price{}, false},
	} {
		if got, known := c.Prices.Price(tc.provider, tc.model); got != tc.want || known != tc.known {
			t.Errorf("%s/%s: %+v, %t", tc.provider, tc.model, got, known)
		}
	}
	if len(c.Notes) != 0 {
		t.Errorf("notes: %q", c.Notes)
	}
}

// TestBuiltInPrices holds what the table promises: a price for the models of the
// metered providers, each dated and sane. Those without one are named here.
func TestBuiltInPrices(t *testing.T) {
	c := mustLoad(t, "")
	unknown := map[string]bool{"github-models/o4-mini": true}
	for _, id := range []string{"anthropic", "openai", "gemini", "groq", "github-models"} {
		for _, tier := range subjects.Tiers {
			model := subjects.CanonicalModel(c.Providers[id].Models[tier])
			if _, known := c.Prices.Price(id, model); known == unknown[id+"/"+model] {
				t.Errorf("%s/%s: a price is known: %t", id, model, known)
			}
		}
	}
	for key, p := range c.Prices.of {
		name := key.provider + "/" + key.model
		if day, err := time.Parse(time.DateOnly, p.Noted); err != nil || day.Year() < 2026 {
			t.Errorf("%s: noted %q", name, p.Noted)
		}
		checkRates(t, name, &p.Rates)
		if p.LongOver != 0 {
			checkRates(t, name+" for long prompts", &p.Long)
			if p.Long.Input <= p.Input || p.Long.Output <= p.Output || (p.Long.CacheRead == UnknownRate) != (p.CacheRead == UnknownRate) ||
				(p.Long.CacheWrite == UnknownRate) != (p.CacheWrite == UnknownRate) {
				t.Errorf("%s: a long prompt at %+v, a short one at %+v", name, p.Long, p.Rates)
			}
		}
	}
	n, oldest, newest := c.Prices.Noted()
	if n < 40 || oldest < "2026-01-01" || newest < oldest {
		t.Errorf("%d prices, noted from %s to %s", n, oldest, newest)
	}
}

// checkRates holds what is so for every vendor: output is dearer than input, a
// cached token is cheaper than a fresh one, and writing it is not.
func checkRates(t *testing.T, name string, r *Rates) {
	t.Helper()
	if r.Input <= 0 || r.Output <= r.Input || r.Output > 100_000_000 {
		t.Errorf("%s: %+v", name, r)
	}
	if r.CacheRead != UnknownRate && (r.CacheRead <= 0 || r.CacheRead >= r.Input) {
		t.Errorf("%s: cache reads at %d", name, r.CacheRead)
	}
	if r.CacheWrite != UnknownRate && r.CacheWrite < r.Input {
		t.Errorf("%s: cache writes at %d", name, r.CacheWrite)
	}
}

func TestPriceFor(t *testing.T) {
	p := Price{Rates: Rates{1, 2, 3, 4}, LongOver: 200_000, Long: Rates{5, 6, 7, 8}}
	for tokens, want := range map[int64]Rate{0: 1, 200_000: 1, 200_001: 5, 1 << 40: 5, -1: 1} {
		if got := p.For(tokens).Input; got != want {
			t.Errorf("%d tokens: input at %d", tokens, got)
		}
	}
	p.LongOver = 0
	if got := p.For(1 << 40).Input; got != 1 {
		t.Errorf("without a long price: input at %d", got)
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]Rate{
		"0": 0, "0.0": 0, "1": 1_000_000, "1.00": 1_000_000, "0.075": 75_000, "0.000001": 1, "9999.999999": 9_999_999_999, "10000": 10_000_000_000,
	} {
		if got, ok := parseRate(text); !ok || got != want {
			t.Errorf("%q: %d, %t", text, got, ok)
		}
	}
	for _, text := range []string{
		"", ".", "1.", ".5", "-1", "+1", "1e3", "0x1", "1_0", "01", "00.5", "1.0000001", "0.0000010", "10000.000001", "10001", "1,5", "1.5.5",
		"NaN", "inf", " 1", "1 ", "1.1a", "٣", "99999999999999999999",
	} {
		if got, ok := parseRate(text); ok {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// FuzzParseRate: what is read is the number that stands there, exactly, and
// within the bound.
func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"0", "1.25", "10000", "0.000001", "1.0000001", "-1", "1e3", "١"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := parseRate(text)
		if !ok {
			return
		}
		dollars, fine := new(big.Rat).SetString(text)
		if !fine || new(big.Rat).Mul(dollars, big.NewRat(1_000_000, 1)).Cmp(big.NewRat(int64(n), 1)) != 0 {
			t.Fatalf("%q is read as %d micro-dollars", text, n)
		}
		if n < 0 || n > maxRate || strings.ContainsAny(text, "eE+-/_ ") {
			t.Fatalf("%q is read as %d", text, n)
		}
	})
}

func TestPriceLookupAllocatesNothing(t *testing.T) {
	c := mustLoad(t, "")
	provider, model := "anthropic", strings.Repeat("claude-haiku-4.5", 1)
	if n := testing.AllocsPerRun(100, func() {
		if _, known := c.Prices.Price(provider, model); !known {
			t.Fatal("not known")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPrice(b *testing.B) {
	c, err := Load(Options{})
	if err != nil {
		b.Fatal(err)
	}
	for _, model := range []string{"claude-haiku-4.5", "none"} {
		b.Run(fmt.Sprint("anthropic_", model), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Prices.Price("anthropic", model)
			}
		})
	}
}
