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
	Mode    string `json:"mode"`
	Breaker string `json:"breaker,omitempty"`
	Quota   string `json:"quota,omitempty"`
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
}
