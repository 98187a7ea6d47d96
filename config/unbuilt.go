package config

// refused are keys of the contract that this version cannot keep, and where
// keeping quiet about it would be a danger.
var refused = append([]field{
	{"hooks", refuse("hooks are not built yet: nobody would be asked, and content would go out unchecked; remove the section")},
}, rates...)

var rates = []field{{"rpm", refuse(noRates)}, {"tpm", refuse(noRates)}}

const noRates = "limits per minute are not built yet; remove the key (pools.caps and LLM_MAX_RPM_<PROVIDER> bound the calls in flight)"

func refuse(why string) func(value) {
	return func(v value) { v.fault("%s", why) }
}

// unbuilt reads a section that this version does not act on, and says so when
// it is the user's.
func unbuilt(why string, read func(value)) func(value) {
	return func(v value) {
		if !v.d.builtIn && !v.empty() {
			v.d.note("%s: read, but %s", v.path, why)
		}
		read(v)
	}
}

func fields(fs ...field) func(value) {
	return func(v value) { v.object(fs...) }
}

func (d *decoder) unbuiltSections() []field {
	var n int64
	var usd float64
	var yes bool
	positive := bounds{lo: 1, hi: maxBytes}
	return []field{
		{"cache", unbuilt("the cache is not built yet; every call goes to a provider", fields(
			field{"maxSize", whole(&n, positive)},
			field{"ttlMs", whole(&n, positive)},
		))},
		{"circuit_breaker", unbuilt("circuit breakers are not built yet; a failing provider is tried by every call", fields(
			field{"threshold", whole(&n, count)},
			field{"resetTimeoutMs", whole(&n, positive)},
		))},
		{"cost_limits", unbuilt("budgets are not built yet; calls are not limited by cost", fields(
			field{"budget_mode", decimal(&usd, maxUSD)},
			field{"standard_mode", decimal(&usd, maxUSD)},
			field{"quality_mode", decimal(&usd, maxUSD)},
		))},
		{"batch_cost_limits", unbuilt("budgets are not built yet; batches are not limited by cost", fields(
			field{"max_tokens_per_batch", whole(&n, positive)},
			field{"max_cost_per_batch_usd", decimal(&usd, maxUSD)},
			field{"total_budget_usd", decimal(&usd, maxUSD)},
			field{"fallback_on_quota", boolean(&yes)},
		))},
	}
}
