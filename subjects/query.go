package subjects

// Health is the answer of llm.query.health and GET /health.
type Health struct {
	// Status is "ok" or "degraded".
	Status string `json:"status"`
	// Reasons says why a node is degraded.
	Reasons          []string                  `json:"reasons,omitempty"`
	Version          string                    `json:"version"`
	Mode             string                    `json:"mode"`
	UptimeSeconds    int64                     `json:"uptimeSeconds"`
	InFlightRequests int                       `json:"inFlightRequests"`
	Providers        map[string]ProviderHealth `json:"providers"`
	// Pools is keyed by "<provider>/<model>".
	Pools   map[string]PoolHealth  `json:"pools"`
	Classes map[string]ClassHealth `json:"classes"`
	Usage   UsageHealth            `json:"usage"`
	// CanServe is false when no provider can serve, or nothing may be started:
	// HTTP answers 503.
	CanServe bool `json:"canServe"`
}

// ProviderHealth is one provider's state.
type ProviderHealth struct {
	Available bool `json:"available"`
	// Reason says why it is not available; empty when it is.
	Reason string `json:"reason,omitempty"`
	// Mode says how it is reached: "api", "subscription", "local", "mock" or "remote".
	Mode string `json:"mode"`
	// Breaker is "closed", "open" or "half-open"; Quota is "ok", "soft_limit" or
	// "exhausted"; RetryAt is when one that is open or exhausted is tried again.
	Breaker string `json:"breaker,omitempty"`
	Quota   string `json:"quota,omitempty"`
	RetryAt *Time  `json:"retryAt,omitempty"`
	// Account, Models (by tier) and Capabilities are those of llm.query.providers.
	Account      string            `json:"account,omitempty"`
	Models       map[string]string `json:"models,omitempty"`
	Capabilities []string          `json:"capabilities"`
}

// PoolHealth is one (provider, model) pool. Counts are calls; Peak is the
// highest Active since start.
type PoolHealth struct {
	Cap    int `json:"cap"`
	Active int `json:"active"`
	Queued int `json:"queued"`
	Peak   int `json:"peak"`
	// Granted counts the slots given since start.
	Granted int64 `json:"granted"`
}

// ClassHealth is one class pool.
type ClassHealth struct {
	Slots   int   `json:"slots"`
	Active  int   `json:"active"`
	Queued  int   `json:"queued"`
	Peak    int   `json:"peak"`
	Granted int64 `json:"granted"`
}

// UsageHealth is the state of the usage log.
type UsageHealth struct {
	// Pending counts records that are paid for and not yet stored.
	Pending int `json:"pending"`
	// LastSeq is the stream sequence of the last stored record of this node,
	// AppliedSeq the last one in the database; their difference is the lag.
	LastSeq    uint64 `json:"lastSeq"`
	AppliedSeq uint64 `json:"appliedSeq"`
	Error      string `json:"error,omitempty"`
}

// ProviderInfo is one row of llm.query.providers.
type ProviderInfo struct {
	Provider  string `json:"provider"`
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
	Account   string `json:"account"`
	// Local says that a call to it leaves nothing with a vendor, Outside that it
	// was announced by a program of its own.
	Local   bool `json:"local"`
	Outside bool `json:"outside"`
	// Models has the model of each tier, AvailableModels all that may be asked for
	// where the provider lists them.
	Models          map[string]string `json:"models"`
	AvailableModels []string          `json:"availableModels,omitempty"`
	Capabilities    []string          `json:"capabilities"`
	Breaker         *BreakerInfo      `json:"breaker,omitempty"`
	Quota           *QuotaInfo        `json:"quota,omitempty"`
}

// States of a circuit breaker.
const (
	BreakerClosed   = "closed"
	BreakerOpen     = "open"
	BreakerHalfOpen = "half-open"
)

// BreakerInfo is the state of a provider's circuit breaker.
type BreakerInfo struct {
	State string `json:"state"`
	// Failures counts the consecutive failures, Opened how often in a row it has
	// opened: each time doubles the pause.
	Failures int `json:"failures"`
	Opened   int `json:"opened"`
	// RetryAt is when one call may try again; null when closed.
	RetryAt *Time `json:"retryAt,omitempty"`
	// Reason is the kind of the error that opened it.
	Reason string `json:"reason,omitempty"`
}

// States of a provider's quota.
const (
	QuotaOK        = "ok"
	QuotaSoftLimit = "soft_limit"
	QuotaExhausted = "exhausted"
)

// QuotaInfo is what is known of a provider's quota.
type QuotaInfo struct {
	State string `json:"state"`
	// Tracked says that completions are counted (quotaTracking).
	Tracked bool `json:"tracked"`
	// Completions and Tokens (estimated where nobody counted) are those of the last
	// hour; SoftLimit is the completions an hour above which State is soft_limit,
	// which stops nobody; 0 = none.
	Completions int64 `json:"completions"`
	Tokens      int64 `json:"tokens"`
	SoftLimit   int64 `json:"softLimit"`
	// Exhausted has the account (Model "") and the models that are out of quota.
	Exhausted []QuotaHold `json:"exhausted,omitempty"`
	// Windows are the limits that the provider itself reports.
	Windows []QuotaWindow `json:"windows,omitempty"`
}

// QuotaHold is an account, or one model of it, that has no quota left.
type QuotaHold struct {
	Model string `json:"model,omitempty"`
	Since Time   `json:"since"`
	// RetryAt is when one call may try again; ResetAt what the provider says of the
	// end, null when it says nothing. Times counts the exhaustions in a row.
	RetryAt Time  `json:"retryAt"`
	ResetAt *Time `json:"resetAt,omitempty"`
	Times   int   `json:"times"`
}

// QuotaWindow is one limit as its provider reports it.
type QuotaWindow struct {
	// Name is the provider's: 5h, 7d, premium_interactions, …
	Name string `json:"name"`
	// Used is the part that is spent, 0 to 1, above 1 when overdrawn.
	Used    float64 `json:"used"`
	Status  string  `json:"status,omitempty"`
	ResetAt *Time   `json:"resetAt,omitempty"`
	SeenAt  Time    `json:"seenAt"`
	// HeldFor names the class for which the rest is held back (quota.reserve).
	HeldFor string `json:"heldFor,omitempty"`
}

// QuotaResetRequest forgets that a provider's quota ran out.
type QuotaResetRequest struct {
	Provider string `json:"provider"`
}

// QuotaResetReply says how many holds (of the account and of models) were lifted.
type QuotaResetReply struct {
	Provider string `json:"provider"`
	Lifted   int    `json:"lifted"`
}

// CacheClearReply says how many answers were forgotten.
type CacheClearReply struct {
	Entries int `json:"entries"`
}

// ReloadReply says whether the configuration has changed. Notes are remarks that
// are no faults: a key that needs a restart.
type ReloadReply struct {
	Changed bool     `json:"changed"`
	File    string   `json:"file,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// Metrics are counted in memory since the node started: the answer of
// llm.query.metrics.
type Metrics struct {
	Since     Time                       `json:"since"`
	Providers map[string]ProviderMetrics `json:"providers"`
	Cache     CacheMetrics               `json:"cache"`
	// Budgets are those in use on this node: the total first, then the last used.
	Budgets []BudgetState `json:"budgets"`
}

// BudgetState is how one budget stands. Spent, Reserved and Limit are in Unit: usd
// or tokens.
type BudgetState struct {
	// Scope is run, batch or total, ID the run's or batch's name, or the period of
	// the total (2026-12).
	Scope    string  `json:"scope"`
	ID       string  `json:"id"`
	Unit     string  `json:"unit"`
	Spent    float64 `json:"spent"`
	Reserved float64 `json:"reserved"`
	Limit    float64 `json:"limit"`
	// Known says that what was spent before this node's start is counted.
	Known bool `json:"known"`
	// Waiting counts the calls in line for it.
	Waiting int `json:"waiting"`
}

// ProviderMetrics counts a provider's attempts on this node.
type ProviderMetrics struct {
	// Calls counts attempts: Successes + Failures + Cancelled. Errors has the
	// failures by kind.
	Calls     int64            `json:"calls"`
	Successes int64            `json:"successes"`
	Failures  int64            `json:"failures"`
	Cancelled int64            `json:"cancelled"`
	Errors    map[string]int64 `json:"errors"`
	// SuccessRate and FailureRate are parts of Successes + Failures, 0 to 1.
	SuccessRate float64 `json:"successRate"`
	FailureRate float64 `json:"failureRate"`
	// Latencies are of successes: the average of all, the others of the last 512.
	AvgLatencyMs float64 `json:"avgLatencyMs"`
	P50LatencyMs float64 `json:"p50LatencyMs"`
	P95LatencyMs float64 `json:"p95LatencyMs"`
	MaxLatencyMs float64 `json:"maxLatencyMs"`
	// CallsPerMinute and TokensPerMinute are of the last five minutes.
	CallsPerMinute  float64 `json:"callsPerMinute"`
	TokensPerMinute float64 `json:"tokensPerMinute"`
	InputTokens     int64   `json:"inputTokens"`
	OutputTokens    int64   `json:"outputTokens"`
	TotalTokens     int64   `json:"totalTokens"`
	// EstimatedCostUSD sums what is known; Unpriced counts the attempts beside it.
	EstimatedCostUSD USD   `json:"estimatedCostUsd"`
	SavedUSD         USD   `json:"savedUsd"`
	Unpriced         int64 `json:"unpriced"`
}

// CacheMetrics counts the cache's work. Shared counts the calls that took part
// in another's attempt; they are among the hits of HitRatio, as Hits is.
type CacheMetrics struct {
	Hits       int64   `json:"hits"`
	Misses     int64   `json:"misses"`
	Shared     int64   `json:"shared"`
	HitRatio   float64 `json:"hitRatio"`
	Entries    int     `json:"entries"`
	MaxEntries int     `json:"maxEntries"`
	Bytes      int64   `json:"bytes"`
	MaxBytes   int64   `json:"maxBytes"`
	Evicted    int64   `json:"evicted"`
}

// ProvidersReply is the answer of llm.query.providers.
type ProvidersReply struct {
	Providers []ProviderInfo `json:"providers"`
}

// ModelInfo is one model that a caller may ask for.
type ModelInfo struct {
	ID       string `json:"id"`
	Provider string `json:"provider"`
}

// ModelsReply is the answer of llm.query.models.
type ModelsReply struct {
	Models []ModelInfo `json:"models"`
}

// RouteQuery asks which provider and model a job would get.
type RouteQuery struct {
	Task     string `json:"task,omitempty"`
	Tier     string `json:"tier,omitempty"`
	Process  string `json:"process,omitempty"`
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
	Privacy  string `json:"privacy,omitempty"`
	Tools    bool   `json:"tools,omitempty"`
	// Needs are further capabilities, by the names of Capabilities.
	Needs []string `json:"needs,omitempty"`
	// Class is who is waiting; "" = by process.
	Class     string `json:"class,omitempty"`
	ForcePaid bool   `json:"forcePaid,omitempty"`
	// RunID and BatchID name the limits that apply.
	RunID   string `json:"runId,omitempty"`
	BatchID string `json:"batchId,omitempty"`
	// Sensitivity asks as if the content were classified so.
	Sensitivity string `json:"sensitivity,omitempty"`
}

// Candidate is one place in the chain.
type Candidate struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
}

// Skipped is a provider that the decision left out.
type Skipped struct {
	Provider string `json:"provider"`
	// Reason is one word, the same as in an attempt trail.
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
	// RetryAt is when it may be tried again, where that is known.
	RetryAt *Time `json:"retryAt,omitempty"`
}

// Route is the routing decision with its reasons.
type Route struct {
	Tier    string      `json:"tier"`
	Task    string      `json:"task,omitempty"`
	Class   string      `json:"class"`
	Chain   []Candidate `json:"chain"`
	Skipped []Skipped   `json:"skipped"`
	Notes   []string    `json:"notes,omitempty"`
	Summary string      `json:"summary"`
	// Sensitivity is what was asked for; RetryAt, when the chain is empty, the
	// soonest time at which trying again makes sense.
	Sensitivity string `json:"sensitivity,omitempty"`
	RetryAt     *Time  `json:"retryAt,omitempty"`
}
