// Package config reads llm-providers.yaml and the environment into one checked
// Config. It is strict: an unknown key, a wrong type or an impossible value is
// refused with file, line and the nearest valid key, and all faults of a file
// are reported at once. A Config is read-only after Load and may be shared. Load
// may be called over and over, as a reload does; Changed says what an edit has
// changed. Schema is the same table of keys for editors (shape.go).
package config

import (
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// Modes of SEMANTIC_ANALYSIS_MODE.
const (
	ModeMock   = "mock"
	ModeLocal  = "local"
	ModePublic = "public"
)

// ProviderIDs lists the built-in providers in the order of the contract.
var ProviderIDs = []string{
	"claude-code", "copilot", "groq", "anthropic", "openai", "gemini",
	"github-models", "dmr", "ollama", "mock", "custom", "proxy",
}

// Secret is a key or token. It prints as *** in every verb, in JSON, YAML and
// logs; Reveal gives the text to the one place that sends it.
//
// The text stands behind a pointer: where fmt cannot call methods (%p, a bad
// verb, an unexported field) it prints an address and not the text.
type Secret struct{ v *string }

// Config is the whole configuration, defaults filled in.
type Config struct {
	// File is the file it came from; "" = the built-in default.
	File string
	// Mode is mock, local or public (the default).
	Mode string
	// ForcedTier and ForcedProvider come from SEMANTIC_ANALYSIS_TIER and _PROVIDER;
	// "" = not set.
	ForcedTier     string
	ForcedProvider string
	// CostMode is CostBudget, CostStandard (the default) or CostQuality: which
	// limit a run has. CostBudget also sends everything to the fast tier.
	CostMode string

	// Providers has an entry for each of Order: ProviderIDs, then those that the
	// file adds, by name.
	Providers map[string]*Provider
	Order     []string
	// ProviderPriority is the order of providers per tier.
	ProviderPriority map[string][]string
	// TaskPriority is the order of providers of a task, in place of its tier's.
	TaskPriority map[string][]string
	// TaskTiers maps a task to its tier; DefaultTier serves every other task.
	TaskTiers   map[string]string
	DefaultTier string
	// ProcessClasses maps a process to its class where the subject has none.
	// Keys may end in "*".
	ProcessClasses map[string]string

	Pools Pools
	Retry Retry
	// FallbackOn has the kinds that advance the chain.
	FallbackOn map[subjects.Kind]bool
	Usage      Usage
	Cache      Cache
	Breaker    Breaker
	Costs      Costs
	Quota      Quota
	// Sensitivity says which providers may see what.
	Sensitivity Sensitivity
	// Hooks has the services that Sluice asks, by HookMock, HookBudget and
	// HookSensitivity; one that is not there is not asked.
	Hooks map[string]Hook
	// Prices says what models cost.
	Prices Prices

	// Notes are remarks for the operator that are no faults: a section that this
	// version reads and does not act on yet, a variable that changes nothing.
	Notes []string
}

// KindOpenAI is the kind of a provider that the configuration adds: a server of
// OpenAI's chat-completions form.
const KindOpenAI = "openai-compatible"

// KindMock is the kind of the mock provider. A provider of this kind with a Mock
// is served by the mock whatever its id and account: a demo or a test puts it in
// the place of a vendor, from Go; a file cannot.
const KindMock = "mock"

// KindOutside is the kind of a provider that announced itself.
const KindOutside = "outside"

// Provider is one account.
type Provider struct {
	ID string
	// Kind says who serves it: its own id, KindOpenAI for an added one, KindOutside,
	// or KindMock for a stand-in.
	Kind string
	// Account is the kind of account that is billed, as usage records name it.
	Account string
	// BaseURL is the API root with its version part, without a trailing slash;
	// "" = the provider has no HTTP API or none is set.
	BaseURL string
	// APIKeyEnv names the variable that APIKey was read from.
	APIKeyEnv string
	APIKey    Secret
	// Timeout bounds one attempt: a whole answer, or the time until a stream
	// begins; 0 = the call's deadline only.
	Timeout time.Duration
	// IdleTimeout bounds the silence between two events of a stream.
	IdleTimeout time.Duration
	// Models maps a tier to this provider's model id; may be empty.
	Models map[string]string
	// AvailableModels, when not empty, lists the ids this provider serves; a
	// tier that names another is refused at load.
	AvailableModels []string
	// StreamUsage asks for usage in streams (stream_options); off for servers
	// that refuse the field. Default true.
	StreamUsage bool
	// Capabilities, when not nil, are all that the provider can do, by the names
	// of subjects.Capabilities; a provider never does more than its kind can.
	Capabilities []string
	// CredentialsFile is where another program keeps this account's login: that
	// of OpenCode for copilot, of the claude program for claude-code; "" = not
	// known. CredentialsNamed says that a variable named the file.
	CredentialsFile  string
	CredentialsNamed bool
	// Quota counts a subscription's completions; nil = not tracked.
	Quota *QuotaTracking
	// CLICommand is claude-code's program, Direct whether its login may be used
	// without the program.
	CLICommand string
	Direct     bool
	// Mock is set where Kind is KindMock, and only there.
	Mock *Mock
}

// Mock is the mock provider's behaviour: Default, and by task name.
type Mock struct {
	Default MockBehaviour
	Tasks   map[string]MockBehaviour
}

// MockBehaviour says what the mock does with a request. See providers/mock.
type MockBehaviour struct {
	// Latency is the time to the answer (to the first event of a stream).
	Latency time.Duration
	// ChunkDelay is the time between two events of a stream; Chunks is how many
	// there are (0 = one a word).
	ChunkDelay time.Duration
	Chunks     int
	// InputTokens and OutputTokens are what is reported; 0 = counted from the text.
	InputTokens  int64
	OutputTokens int64
	// Content is the answer; "" = derived from the prompt.
	Content string
	// Error, when set, is the kind that fails the first Errors tries of a call
	// (0 = all). RetryAfter goes with it. FailAfterChunks > 0 fails a stream
	// after so many events.
	Error           subjects.Kind
	Errors          int
	RetryAfter      time.Duration
	FailAfterChunks int
}

// Pools bounds admission.
type Pools struct {
	// Caps bounds the calls in flight of each (provider, model) pair, by
	// "provider/model" or by "provider" for all of its models. From the file's
	// pools.caps and LLM_MAX_RPM_<PROVIDER>, which wins over the file's "provider" key.
	Caps map[string]int
	// DefaultCap serves every other pair.
	DefaultCap int
	// MaxQueue bounds the calls waiting in one pool and class; above it a call
	// is refused with POOL_FULL.
	MaxQueue int
	// MaxCalls bounds the calls that a node holds at once, waiting or running,
	// and MaxBytes the sum of their bodies.
	MaxCalls int
	MaxBytes int64
	// Classes has slots and weight of each class.
	Classes map[string]Class
	// SaturatedAfter is the wait at which llm.pool_saturated is sent: 500 ms.
	SaturatedAfter time.Duration
}

// Class is a workload class's share: how many of its calls may run at once,
// and how many turns it gets for each turn of a class of weight 1.
type Class struct {
	Slots  int
	Weight int
}

// Cap returns the bound of one (provider, model) pool.
func (p *Pools) Cap(provider, model string) int {
	if n, ok := p.Caps[provider+"/"+model]; ok {
		return n
	}
	if n, ok := p.Caps[provider]; ok {
		return n
	}
	return p.DefaultCap
}

// Retry bounds the tries at one provider.
type Retry struct {
	// MaxAttempts is the number of tries in all: 3.
	MaxAttempts int
	// BaseDelay doubles with each retry up to MaxDelay; Jitter, 0 to 1, is the
	// part of the delay that may be added at random. A Retry-After above MaxDelay
	// is not waited for: the call moves on.
	BaseDelay time.Duration
	MaxDelay  time.Duration
	Jitter    float64
	// CallTimeout is the deadline of a call that names none.
	CallTimeout time.Duration
}

// Usage is about the usage log.
type Usage struct {
	// PromptPreview keeps the first 120 characters of the prompt. Default true.
	PromptPreview bool
	// StreamMaxBytes bounds the JetStream stream; the database keeps all rows.
	StreamMaxBytes int64
	// ReserveBytes is the free disk space below which new calls are refused.
	ReserveBytes int64
	// MaxPending bounds the records that are paid for and wait for a log that
	// cannot be written.
	MaxPending int
}

// Cost modes: which limit a run has.
const (
	CostBudget   = "budget"
	CostStandard = "standard"
	CostQuality  = "quality"
)

// Cache bounds the answers that are kept. With MaxEntries or MaxBytes 0 it is off:
// nothing is kept, and calls in flight do not share an attempt.
type Cache struct {
	MaxEntries int           // 1000
	TTL        time.Duration // 1 h
	MaxBytes   int64         // 64 MiB, of all answers
	// MaxEntryBytes bounds one answer: a larger one is not kept. 1 MiB.
	MaxEntryBytes int64
}

// Breaker is about every provider's circuit breaker: Threshold consecutive
// failures open it for ResetTimeout; the pause doubles each time a trial call
// fails, up to MaxPause.
type Breaker struct {
	Threshold    int           // 5
	ResetTimeout time.Duration // 60 s
	MaxPause     time.Duration // 30 min
}

// NoLimit is an amount of a budget that is not bounded.
const NoLimit = -1

// Periods of the total budget.
const (
	PeriodDay   = "day"
	PeriodMonth = "month"
	PeriodAll   = "all"
)

// Costs are the budgets; each may be NoLimit.
type Costs struct {
	// PerRun is the limit of a run in micro-dollars, by cost mode.
	PerRun map[string]subjects.USD
	// BatchTokens bounds the tokens of a batch that leave this side of the network,
	// BatchUSD its cost.
	BatchTokens int64
	BatchUSD    subjects.USD
	// TotalUSD bounds the cost of all calls of a period, which is a day or a month
	// of the calendar (UTC) or the whole life of the database.
	TotalUSD    subjects.USD
	TotalPeriod string
	// Fallback sends calls over a budget to what costs nothing; else they fail.
	Fallback bool
}

// RunLimit is the limit of a run in the configured cost mode.
func (c *Config) RunLimit() subjects.USD {
	if limit, ok := c.Costs.PerRun[c.CostMode]; ok {
		return limit
	}
	return NoLimit
}

// QuotaTracking counts the completions of a subscription. SoftLimitPerHour is a
// mark that is shown, and stops nobody; 0 = none.
type QuotaTracking struct {
	Enabled          bool
	SoftLimitPerHour int
}

// Quota is about the windows that providers report.
type Quota struct {
	// Reserve holds the last part (0 to 1) of each window back for a class: the
	// others pass the provider by once so much is left.
	Reserve map[string]float64
}

// How sensitive content is.
const (
	Public       = "public"
	Internal     = "internal"
	Confidential = "confidential"
)

// Sensitivities lists them, the least first.
var Sensitivities = []string{Public, Internal, Confidential}

// Sensitivity says which providers may see content, by its sensitivity. The
// words AllowAll and AllowLocal stand for all providers and for the local ones. A
// sensitivity that is not there may go to all.
type Sensitivity struct {
	Allow map[string][]string
}

// Words of Sensitivity.Allow.
const (
	AllowAll   = "all"
	AllowLocal = "local"
)

// Injection points.
const (
	HookMock        = "mock"
	HookBudget      = "budget"
	HookSensitivity = "sensitivity"
)

// What to do when a hook does not answer.
const (
	OnErrorAllow = "allow"
	OnErrorLocal = "local"
	OnErrorDeny  = "deny"
)

// Hook is one service that Sluice asks.
type Hook struct {
	Subject string
	Timeout time.Duration // 250 ms
	// OnError is OnErrorAllow, OnErrorLocal or OnErrorDeny.
	OnError string
}

// ClassOf returns the class that ProcessClasses gives a process: its own entry,
// else the longest that ends in * and begins its name; "" = none.
func (c *Config) ClassOf(process string) string {
	if class, ok := c.ProcessClasses[process]; ok {
		return class
	}
	class, longest := "", 0
	for pattern, is := range c.ProcessClasses {
		prefix, open := strings.CutSuffix(pattern, "*")
		if open && strings.HasPrefix(process, prefix) && len(pattern) > longest {
			class, longest = is, len(pattern)
		}
	}
	return class
}
