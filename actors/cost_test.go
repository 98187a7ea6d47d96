package actors

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

func loadPrices(t testing.TB, file string) *config.Prices {
	t.Helper()
	c, err := config.Load(config.Options{File: "f.yaml", ReadFile: func(string) ([]byte, error) { return []byte(file), nil }})
	if err != nil {
		t.Fatal(err)
	}
	return &c.Prices
}

const testPrices = `prices:
  noted: 2026-11-30
  anthropic/claude-t: {input: 3, output: 15, cache_read: 0.30, cache_write: 3.75}
  openai/gpt-t: {input: 2.50, output: 15, cache_read: 0.25, long_prompts: {over_tokens: 272000, input: 5, output: 22.50, cache_read: 0.50}}
  gemini/gemini-t: {input: 1.25, output: 10, cache_read: 0.125, long_prompts: {over_tokens: 200000, input: 2.50, output: 15}}
  groq/llama-t: {input: 0.05, output: 0.08}
  github-models/openai/gpt-u: {input: 0.000001, output: 0.4}
  custom/free: {input: 0, output: 0, cache_read: 0, cache_write: 0}
  anthropic/both-t: {input: 1, output: 1}
  openai/both-t: {input: 2, output: 2}
  copilot/own-t: {input: 7, output: 7}
  openai/own-t: {input: 1, output: 1}
  bare-t: {input: 10, output: 10}
  openai/bare-t: {input: 4, output: 4}
`

// unknown is a cost that is not known.
const unknown = -1

// TestCost has costs worked out by hand, for the counts that each provider's
// convention comes to: input is what is left of the prompt without cached tokens.
func TestCost(t *testing.T) {
	prices := loadPrices(t, testPrices)
	const key, plan, copilot, local, mock = subjects.SubscriptionAPIKey, subjects.SubscriptionMax, subjects.SubscriptionCopilot, subjects.SubscriptionLocal, subjects.SubscriptionMock
	for name, c := range map[string]struct {
		account, provider, model   string
		input, output, read, write int64
		cost, saved                int64 // micro-dollars
	}{
		// input_tokens 1000 beside 2000 read and 400 written, output 500 with its thinking:
		// 1000*3 + 500*15 + 2000*0.30 + 400*3.75 = 3000 + 7500 + 600 + 1500
		"anthropic": {key, "anthropic", "claude-t", 1000, 500, 2000, 400, 12_600, unknown},
		// prompt_tokens 3000 with 2000 cached inside, completion_tokens 500 with reasoning:
		// 1000*2.50 + 500*15 + 2000*0.25 = 2500 + 7500 + 500
		"openai": {key, "openai", "gpt-t", 1000, 500, 2000, 0, 10_500, unknown},
		// promptTokenCount 3000 with 2000 cached inside, candidates 300 and thoughts 200 beside:
		// 1000*1.25 + 500*10 + 2000*0.125 = 1250 + 5000 + 250
		"gemini": {key, "gemini", "gemini-t", 1000, 500, 2000, 0, 6_500, unknown},
		// 1000*0.05 + 500*0.08 = 50 + 40
		"groq": {key, "groq", "llama-t", 1000, 500, 0, 0, 90, unknown},
		// 272,000 prompt tokens of any kind are not above 272,000: 72000*2.50 + 1000*15 + 200000*0.25
		"at the bound": {key, "openai", "gpt-t", 72_000, 1000, 200_000, 0, 180_000 + 15_000 + 50_000, unknown},
		// one more is, and all of the request is dearer: 72001*5 + 1000*22.50 + 200000*0.50
		"above the bound": {key, "openai", "gpt-t", 72_001, 1000, 200_000, 0, 360_005 + 22_500 + 100_000, unknown},

		"half a micro-dollar is one": {key, "groq", "llama-t", 10, 0, 0, 0, 1, unknown}, // 0.5
		"less is none":               {key, "groq", "llama-t", 9, 0, 0, 0, 0, unknown},  // 0.45
		// 8*0.05 + 5*0.08 = 0.4 + 0.4: rounded once, not by kind
		"rounded once":       {key, "groq", "llama-t", 8, 5, 0, 0, 1, unknown},
		"a millionth each":   {key, "github-models", "gpt-u", 499_999, 0, 0, 0, 0, unknown},
		"and at last a half": {key, "github-models", "gpt-u", 500_000, 0, 0, 0, 1, unknown},

		"no price":                              {key, "anthropic", "claude-none", 10, 10, 0, 0, unknown, unknown},
		"no price at this provider":             {key, "custom", "claude-t", 10, 10, 0, 0, unknown, unknown},
		"no rate for what was read":             {key, "groq", "llama-t", 10, 10, 1, 0, unknown, unknown},
		"no rate for what was written":          {key, "openai", "gpt-t", 10, 10, 0, 1, unknown, unknown},
		"no rate for what a long prompt read":   {key, "gemini", "gemini-t", 200_000, 10, 1, 0, unknown, unknown},
		"a rate that no token needs":            {key, "groq", "llama-t", 20, 0, 0, 0, 1, unknown},
		"nothing was spent":                     {key, "anthropic", "claude-none", 0, 0, 0, 0, 0, unknown},
		"free is known":                         {key, "custom", "free", 1000, 1000, 1000, 1000, 0, unknown},
		"its own price before the model's":      {key, "openai", "bare-t", 1_000_000, 0, 0, 0, 4_000_000, unknown},
		"the model's price for any":             {key, "custom", "bare-t", 1_000_000, 0, 0, 0, 10_000_000, unknown},
		"claude-code saves what Anthropic asks": {plan, "claude-code", "claude-t", 1000, 500, 2000, 400, 0, 12_600},
		"claude-code has no other twin":         {plan, "claude-code", "gpt-t", 1000, 500, 0, 0, 0, unknown},
		"a bare name has no price":              {plan, "claude-code", "sonnet", 1000, 500, 0, 0, 0, unknown},
		"copilot with OpenAI's model":           {copilot, "copilot", "gpt-t", 1000, 500, 2000, 0, 0, 10_500},
		"copilot with Google's model":           {copilot, "copilot", "gemini-t", 1000, 500, 2000, 0, 0, 6_500},
		"copilot with a model of two vendors":   {copilot, "copilot", "both-t", 1_000_000, 0, 0, 0, 0, 1_000_000},
		"copilot with a price of its own":       {copilot, "copilot", "own-t", 1_000_000, 0, 0, 0, 0, 7_000_000},
		"copilot: a vendor before the name":     {copilot, "copilot", "bare-t", 1_000_000, 0, 0, 0, 0, 4_000_000},
		"copilot: nobody sells it":              {copilot, "copilot", "gpt-none", 10, 10, 0, 0, 0, unknown},
		"copilot: nothing was spent":            {copilot, "copilot", "gpt-none", 0, 0, 0, 0, 0, 0},
		"a local runner has no twin":            {local, "ollama", "llama-t", 1000, 500, 0, 0, 0, unknown},
		"nor has the mock":                      {mock, "mock", "mock-fast", 1000, 500, 0, 0, 0, unknown},
		"local, though it has a price":          {local, "custom", "bare-t", 1000, 500, 0, 0, 0, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			u := &subjects.Usage{InputTokens: c.input, OutputTokens: c.output, CacheReadTokens: c.read, CacheWriteTokens: c.write}
			if got := micro(costOf(prices, c.account, c.provider, c.model, u)); got != c.cost {
				t.Errorf("cost %d, want %d", got, c.cost)
			}
			if got := micro(savedOf(prices, c.account, c.provider, c.model, u)); got != c.saved {
				t.Errorf("saved %d, want %d", got, c.saved)
			}
		})
	}
}

func micro(usd *subjects.USD) int64 {
	if usd == nil {
		return unknown
	}
	return int64(*usd)
}

// TestAmountIsExact holds the sum against arbitrary precision: for any counts
// and rates it is the exact sum rounded once, half up, or not known.
func TestAmountIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	count := func() int64 {
		switch r.IntN(6) {
		case 0:
			return 0
		case 1:
			return r.Int64()
		}
		return r.Int64N(1 << r.IntN(40))
	}
	rate := func() config.Rate {
		switch r.IntN(8) {
		case 0:
			return config.UnknownRate
		case 1:
			return config.Rate(r.Int64())
		}
		return config.Rate(r.Int64N(10_000_000_001))
	}
	for range 20_000 {
		u := subjects.Usage{InputTokens: count(), OutputTokens: count(), CacheReadTokens: count(), CacheWriteTokens: count()}
		price := config.Price{Rates: config.Rates{Input: rate(), Output: rate(), CacheRead: rate(), CacheWrite: rate()}}
		if got, want := micro(amount(&price, true, &u)), exactly(&u, &price.Rates); got != want {
			t.Fatalf("%+v at %+v: %d, want %d", u, price.Rates, got, want)
		}
	}
	most := subjects.Usage{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64, CacheReadTokens: math.MaxInt64, CacheWriteTokens: math.MaxInt64}
	dear := config.Price{Rates: config.Rates{Input: math.MaxInt64, Output: math.MaxInt64, CacheRead: math.MaxInt64, CacheWrite: math.MaxInt64}}
	if got := amount(&dear, true, &most); got != nil {
		t.Errorf("more than there is: %v", *got)
	}
	odd := subjects.Usage{InputTokens: -5, OutputTokens: 5}
	if got := amount(&dear, true, &odd); got != nil {
		t.Errorf("fewer tokens than none: %v", *got)
	}
}

// exactly is the sum in micro-dollars by arbitrary precision; unknown where a
// rate is missing or it has no place in the type.
func exactly(u *subjects.Usage, r *config.Rates) int64 {
	sum := new(big.Int)
	for _, part := range []struct {
		n    int64
		rate config.Rate
	}{{u.InputTokens, r.Input}, {u.OutputTokens, r.Output}, {u.CacheReadTokens, r.CacheRead}, {u.CacheWriteTokens, r.CacheWrite}} {
		if part.n != 0 && part.rate < 0 {
			return unknown
		}
		sum.Add(sum, new(big.Int).Mul(big.NewInt(part.n), big.NewInt(int64(max(part.rate, 0)))))
	}
	sum.Div(sum.Add(sum, big.NewInt(500_000)), big.NewInt(1_000_000))
	if !sum.IsInt64() {
		return unknown
	}
	return sum.Int64()
}

// A cost is at most one allocation: that of the amount.
func TestCostAllocates(t *testing.T) {
	prices := loadPrices(t, testPrices)
	u := &subjects.Usage{InputTokens: 1000, OutputTokens: 500, CacheReadTokens: 2000}
	for _, account := range []string{subjects.SubscriptionAPIKey, subjects.SubscriptionCopilot, subjects.SubscriptionLocal} {
		if n := testing.AllocsPerRun(100, func() { costOf(prices, account, "anthropic", "claude-t", u) }); n > 1 {
			t.Errorf("%s: %v allocations for the cost", account, n)
		}
		if n := testing.AllocsPerRun(100, func() { savedOf(prices, account, "copilot", "gpt-t", u) }); n > 1 {
			t.Errorf("%s: %v allocations for what was saved", account, n)
		}
	}
}

func BenchmarkCost(b *testing.B) {
	prices := loadPrices(b, testPrices)
	u := &subjects.Usage{InputTokens: 1000, OutputTokens: 500, CacheReadTokens: 2000}
	b.Run("metered", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			costOf(prices, subjects.SubscriptionAPIKey, "anthropic", "claude-t", u)
		}
	})
	b.Run("copilot's twin", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			savedOf(prices, subjects.SubscriptionCopilot, "copilot", "gpt-t", u)
		}
	})
}
