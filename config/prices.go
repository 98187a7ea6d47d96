package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// Rate is what a million tokens of one kind cost, in micro-dollars (so a
// dollar for a million tokens is 1,000,000). UnknownRate is no number.
type Rate int64

// UnknownRate says that nobody has noted the rate. It is not 0: tokens at an
// unknown rate have an unknown cost.
const UnknownRate Rate = -1

// maxRate bounds a rate: 10,000 dollars a million tokens. The dearest model that
// was ever listed took 600; what is above is a slip of a point.
const maxRate Rate = 10_000_000_000

// Rates are the rates of one model by kind of token. Input is that of fresh
// prompt tokens. CacheRead and CacheWrite may be UnknownRate.
type Rates struct {
	Input, Output, CacheRead, CacheWrite Rate
}

// Price is what a model costs at one provider, for standard requests: no batch,
// no priority, no free allowance.
type Price struct {
	Rates
	// LongOver is the length of the prompt, in tokens of all kinds, above which
	// the whole request is billed by Long; 0 = there is one price.
	LongOver int64
	Long     Rates
	// Noted is the day on which the price was noted, as 2006-01-02; "" = the
	// file does not say.
	Noted string
}

// For returns the rates for a prompt of so many tokens, fresh and cached.
func (p *Price) For(promptTokens int64) *Rates {
	if p.LongOver > 0 && promptTokens > p.LongOver {
		return &p.Long
	}
	return &p.Rates
}

// Prices is the price table. The zero value knows no price. It never changes
// after Load and is safe for concurrent use.
type Prices struct {
	of map[priceKey]Price
}

// priceKey has a canonical model; an empty provider stands for all.
type priceKey struct{ provider, model string }

// Price returns what a model costs at a provider: its price there, else the one
// that is noted for the model alone. model is canonical (subjects.CanonicalModel).
// It does not allocate.
func (p *Prices) Price(provider, model string) (Price, bool) { return p.First(model, provider) }

// First is Price for several providers: the price at the first of them that has
// one for the model, else the one that is noted for the model alone.
func (p *Prices) First(model string, providers ...string) (Price, bool) {
	for _, provider := range providers {
		if price, ok := p.of[priceKey{provider, model}]; ok {
			return price, true
		}
	}
	price, ok := p.of[priceKey{"", model}]
	return price, ok
}

// Noted says how many prices there are and the days on which the first and the
// last of them were noted; "" when none has a date.
func (p *Prices) Noted() (n int, oldest, newest string) {
	for _, price := range p.of {
		if price.Noted == "" {
			continue
		}
		if oldest == "" || price.Noted < oldest {
			oldest = price.Noted
		}
		newest = max(newest, price.Noted)
	}
	return len(p.of), oldest, newest
}

const (
	notedKey = "noted"
	// unknownPrice in the place of a price takes a default away.
	unknownPrice = "unknown"
)

// prices reads the price table, each entry over the whole of the default's.
func (d *decoder) prices(v value) {
	if v.describing() {
		v.property(notedKey, notedKey).date(new(string))
	}
	entries := v.entries(d.priceSpelling)
	noted := ""
	for _, e := range entries {
		if e.key == notedKey {
			e.date(&noted)
		}
	}
	for _, e := range entries {
		if e.key != notedKey {
			d.price(e, noted)
		}
	}
}

// priceSpelling is the same for all keys that mean one model of one provider.
func (d *decoder) priceSpelling(key string) string {
	if key == notedKey {
		return key
	}
	k := d.priceKey(key)
	return k.provider + "/" + k.model
}

// priceKey splits "provider/model"; any other key is a model's name alone.
func (d *decoder) priceKey(key string) priceKey {
	if provider, model, has := strings.Cut(key, "/"); has && d.cfg.Providers[provider] != nil {
		return priceKey{provider, subjects.CanonicalModel(model)}
	}
	return priceKey{"", subjects.CanonicalModel(key)}
}

func (d *decoder) price(e entry, noted string) {
	at := e
	at.pos = e.at
	if !e.nameKey("model") {
		return
	}
	if d.cfg.Providers[e.key] != nil {
		at.fault("must be \"%s/<model>\", or a model's name alone", e.key)
		return
	}
	key := d.priceKey(e.key)
	d.noteOddProvider(e.path, e.key, key)
	if raw, ok := rawText(e.node); ok {
		if raw != unknownPrice {
			e.suggest(subjects.Nearest(raw, []string{unknownPrice}), "found %s; must be keys with values, or %s", describe(e.node), unknownPrice)
		}
		delete(d.cfg.Prices.of, key)
		return
	}
	e.orWord(unknownPrice)
	p := Price{Rates: unknownRates(), Long: unknownRates(), Noted: noted}
	before := len(d.faults)
	e.object(append(rateFields(&p.Rates),
		field{"long_prompts", func(v value) { v.longPrompts(&p) }},
		field{notedKey, func(v value) { v.date(&p.Noted) }},
	)...)
	if len(d.faults) == before {
		e.needRates(&p.Rates)
	}
	d.cfg.Prices.of[key] = p
	if provider, model, has := strings.Cut(e.key, "/"); has && key.provider == "" {
		// A provider that is not in the file may yet announce itself.
		d.cfg.Prices.of[priceKey{provider, subjects.CanonicalModel(model)}] = p
	}
}

// noteOddProvider remarks on a model's name that begins like a provider's.
func (d *decoder) noteOddProvider(path, key string, k priceKey) {
	first, _, has := strings.Cut(key, "/")
	if d.builtIn || !has || k.provider != "" {
		return
	}
	if near := subjects.Nearest(first, d.cfg.Order); near != "" {
		d.note("%s: there is no provider %s here; did you mean %s?", path, show(first), near)
	}
}

func unknownRates() Rates { return Rates{UnknownRate, UnknownRate, UnknownRate, UnknownRate} }

func rateFields(r *Rates) []field {
	return []field{
		{"input", rate(&r.Input)},
		{"output", rate(&r.Output)},
		{"cache_read", rate(&r.CacheRead)},
		{"cache_write", rate(&r.CacheWrite)},
	}
}

// needRates refuses a price that says what half of the tokens cost.
func (v value) needRates(r *Rates) {
	v.need("input", "output")
	switch {
	case r.Input == UnknownRate:
		v.fault("input is missing; give the dollars for a million tokens, or write %s for the whole price", unknownPrice)
	case r.Output == UnknownRate:
		v.fault("output is missing; give the dollars for a million tokens, or write %s for the whole price", unknownPrice)
	}
}

// longPrompts reads the rates of prompts above a length.
func (v value) longPrompts(p *Price) {
	before := len(v.d.faults)
	v.object(append(rateFields(&p.Long),
		field{"over_tokens", whole(&p.LongOver, bounds{lo: 1, hi: maxCount * 1000, unit: "tokens"})},
	)...)
	switch {
	case v.describing():
		v.need("over_tokens", "input", "output")
	case len(v.d.faults) > before:
	case p.LongOver == 0:
		v.fault("over_tokens is missing; give the number of prompt tokens above which these rates count")
	default:
		v.needRates(&p.Long)
	}
}

// date reads a day into to.
func (v value) date(to *string) {
	const must = "must be a day such as 2026-11-30"
	if v.describing() {
		v.says(pattern(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`, len(time.DateOnly)))
		v.orVariable()
		return
	}
	raw, isText := rawText(v.node)
	if !isText {
		v.wrong(must)
		return
	}
	text, ok := v.expanded(raw)
	if !ok {
		return
	}
	if day, err := time.Parse(time.DateOnly, text); err != nil || day.Year() < 2020 {
		v.wrong(must)
		return
	}
	*to = text
}

// rate reads dollars for a million tokens, exactly: as many digits as a
// micro-dollar has, and no floating point.
func rate(to *Rate) func(value) {
	must := fmt.Sprintf("must be US dollars for a million tokens in plain digits, from 0 to %d, with at most 6 decimals", maxRate/1_000_000)
	return func(v value) {
		if v.describing() {
			v.number("number", 0, int64(maxRate/1_000_000))
			return
		}
		text, ok := v.plain(must)
		if !ok {
			return
		}
		n, fits := parseRate(text)
		if !fits {
			v.wrong(must)
			return
		}
		*to = n
	}
}

// parseRate reads dollars for a million tokens as micro-dollars.
func parseRate(text string) (Rate, bool) {
	n, ok := parseMicro(text, int64(maxRate/1_000_000))
	return Rate(n), ok
}

// parseMicro reads dollars, at most maxDollars of them, as micro-dollars: digits,
// and at most one point with one to six digits after it.
func parseMicro(text string, maxDollars int64) (int64, bool) {
	dollars, decimals, point := strings.Cut(text, ".")
	if !point {
		decimals = "0"
	}
	if decimals == "" || len(decimals) > 6 {
		return 0, false
	}
	units, ok := parseWhole(dollars, bounds{lo: 0, hi: maxDollars})
	if !ok {
		return 0, false
	}
	micro := int64(0)
	for i := range 6 {
		digit := byte('0')
		if i < len(decimals) {
			digit = decimals[i]
		}
		if digit < '0' || digit > '9' {
			return 0, false
		}
		micro = micro*10 + int64(digit-'0')
	}
	n := units*1_000_000 + micro
	return n, n <= maxDollars*1_000_000
}
