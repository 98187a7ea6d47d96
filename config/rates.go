package config

// rates are keys of the contract that this version cannot keep; keeping quiet
// about a limit that does not hold would be a danger.
var rates = []field{{"rpm", refuse(noRates)}, {"tpm", refuse(noRates)}}

const noRates = "limits per minute are not built yet; remove the key (pools.caps and LLM_MAX_RPM_<PROVIDER> bound the calls in flight)"

func refuse(why string) func(value) {
	return func(v value) { v.fault("%s", why) }
}
