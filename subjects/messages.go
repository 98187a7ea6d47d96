package subjects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Request is a call on the native wire: a prompt and how to route it. In a
// call over NATS the headers of the same meaning win over the body's fields.
type Request struct {
	Prompt

	Tier     string `json:"tier,omitempty"`
	Task     string `json:"task,omitempty"`
	Process  string `json:"process,omitempty"`
	Provider string `json:"provider,omitempty"`
	// Model is "provider/model", a tier, "auto", or an id that a provider serves.
	Model   string `json:"model,omitempty"`
	AgentID string `json:"agentId,omitempty"`
	// Privacy is "local" (local runners only) or "any" (the default).
	Privacy   string `json:"privacy,omitempty"`
	SkipCache bool   `json:"skipCache,omitempty"`
	// ForcePaid leaves the subscriptions out.
	ForcePaid bool `json:"forcePaid,omitempty"`
	// TimeoutMs is the whole call's deadline from arrival; 1 to MaxTimeoutMs, 0 = the configured default.
	TimeoutMs int64 `json:"timeoutMs,omitempty"`
	// CallID names the call; two requests with one id within two minutes are one call.
	CallID string `json:"callId,omitempty"`
	// RunID is the workflow run and BatchID the batch whose limits apply.
	RunID   string `json:"runId,omitempty"`
	BatchID string `json:"batchId,omitempty"`
	// CacheScope keeps the answer to those who name the same scope; "" = shared
	// by all who name none.
	CacheScope string `json:"cacheScope,omitempty"`
}

// Prompt is what the model is asked.
type Prompt struct {
	Messages       []Message       `json:"messages"`
	Tools          []Tool          `json:"tools,omitempty"`
	ToolChoice     *ToolChoice     `json:"toolChoice,omitempty"`
	Temperature    *float64        `json:"temperature,omitempty"`
	TopP           *float64        `json:"topP,omitempty"`
	MaxTokens      *int64          `json:"maxTokens,omitempty"`
	Stop           StringList      `json:"stop,omitempty"`
	ResponseFormat *ResponseFormat `json:"responseFormat,omitempty"`
	Stream         bool            `json:"stream,omitempty"`
	// Seed and ReasoningEffort (none, minimal, low, medium, high, xhigh, max)
	// steer, where the provider has them. ParallelToolCalls false asks for one
	// tool call at a time.
	Seed              *int64 `json:"seed,omitempty"`
	ReasoningEffort   string `json:"reasoningEffort,omitempty"`
	ParallelToolCalls *bool  `json:"parallelToolCalls,omitempty"`
}

// Message is one turn. Role is system, user, assistant or tool.
type Message struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
	Name    string  `json:"name,omitempty"`
	// ToolCalls are the calls an assistant turn made.
	ToolCalls []ToolCall `json:"toolCalls,omitempty"`
	// ToolCallID says which call a tool turn answers.
	ToolCallID string `json:"toolCallId,omitempty"`
}

// Content is a string or a list of parts; JSON keeps which it was.
type Content struct {
	Text  string
	Parts []Part
}

// Text makes string content.
func Text(s string) Content { return Content{Text: s} }

// String returns the text of the content, parts joined by a newline.
func (c Content) String() string {
	if c.Parts == nil {
		return c.Text
	}
	var b bytes.Buffer
	for _, p := range c.Parts {
		if p.Type != PartText {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Text)
	}
	return b.String()
}

// MarshalJSON writes a string or an array.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.Parts != nil {
		return json.Marshal(c.Parts)
	}
	return json.Marshal(c.Text)
}

// UnmarshalJSON reads a string, an array of parts, or null (no text).
func (c *Content) UnmarshalJSON(b []byte) error {
	*c = Content{}
	b = bytes.TrimSpace(b)
	switch {
	case bytes.Equal(b, []byte("null")):
		return nil
	case len(b) > 0 && b[0] == '[':
		c.Parts = []Part{}
		return json.Unmarshal(b, &c.Parts)
	}
	return json.Unmarshal(b, &c.Text)
}

// Kinds of content parts.
const (
	PartText  = "text"
	PartImage = "image"
)

// Part is one piece of a message's content.
type Part struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	// ImageURL is an http(s) URL or a data: URL with base64 content.
	ImageURL string `json:"imageUrl,omitempty"`
	// Detail is the OpenAI image detail: low, high or auto.
	Detail string `json:"detail,omitempty"`
}

// Tool is a function that the model may call. Parameters is a JSON Schema.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// ToolChoice is "auto", "none", "required" or {"name": "…"}.
type ToolChoice struct {
	Mode string
	Name string
}

// MarshalJSON writes the mode as a string or the name as an object.
func (t ToolChoice) MarshalJSON() ([]byte, error) {
	if t.Name != "" {
		return json.Marshal(struct {
			Name string `json:"name"`
		}{t.Name})
	}
	return json.Marshal(t.Mode)
}

// UnmarshalJSON reads either form.
func (t *ToolChoice) UnmarshalJSON(b []byte) error {
	*t = ToolChoice{}
	b = bytes.TrimSpace(b)
	if len(b) > 0 && b[0] == '{' {
		var o struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(b, &o); err != nil {
			return err
		}
		t.Name = o.Name
		return nil
	}
	return json.Unmarshal(b, &t.Mode)
}

// ToolCall is a call that the model asks for. Arguments is JSON text as the
// model wrote it.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// ResponseFormat asks for text, a JSON object, or JSON that fits Schema.
type ResponseFormat struct {
	Type   string          `json:"type"`
	Name   string          `json:"name,omitempty"`
	Schema json.RawMessage `json:"schema,omitempty"`
	Strict *bool           `json:"strict,omitempty"`
}

// StringList is a list of strings; a single string in JSON is a list of one.
type StringList []string

// UnmarshalJSON reads a string or an array of strings.
func (l *StringList) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*l = StringList{s}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(l))
}

// Finish reasons.
const (
	FinishStop          = "stop"
	FinishLength        = "length"
	FinishToolCalls     = "tool_calls"
	FinishContentFilter = "content_filter"
)

// Usage counts tokens. InputTokens are fresh prompt tokens on every provider;
// prompt-cache traffic is additive in its own two fields. TotalTokens is
// InputTokens + OutputTokens. ReasoningTokens are part of OutputTokens.
type Usage struct {
	InputTokens      int64 `json:"inputTokens"`
	OutputTokens     int64 `json:"outputTokens"`
	TotalTokens      int64 `json:"totalTokens"`
	CacheReadTokens  int64 `json:"cacheReadTokens"`
	CacheWriteTokens int64 `json:"cacheWriteTokens"`
	ReasoningTokens  int64 `json:"reasoningTokens"`
	// Estimated says that the provider reported none of it, or not all.
	Estimated bool `json:"estimated"`
}

// Outcomes of an attempt beside the error kinds.
const (
	OutcomeOK      = "ok"
	OutcomeSkipped = "skipped"
)

// Attempt is one try at one provider inside a call, or a candidate skipped.
type Attempt struct {
	Provider string `json:"provider"`
	Model    string `json:"model,omitempty"`
	// Outcome is "ok", an error kind, or "skipped".
	Outcome string `json:"outcome"`
	// Reason says in one word why a candidate was skipped; never a message.
	Reason string `json:"reason,omitempty"`
	Ms     int64  `json:"ms"`
	// Spent is what a try used that did not become the call's answer. The tokens
	// of the try that did are the record's own.
	Spent *Spent `json:"spent,omitempty"`
}

// Spent is what a failed try used. Model is canonical; CostUSD is null when the
// price is not known.
type Spent struct {
	Model string `json:"model"`
	// Subscription is the kind of account: one of the Subscription constants.
	Subscription     string `json:"subscription,omitempty"`
	InputTokens      int64  `json:"inputTokens"`
	OutputTokens     int64  `json:"outputTokens"`
	CacheReadTokens  int64  `json:"cacheReadTokens,omitempty"`
	CacheWriteTokens int64  `json:"cacheWriteTokens,omitempty"`
	ReasoningTokens  int64  `json:"reasoningTokens,omitempty"`
	Estimated        bool   `json:"estimated,omitempty"`
	CostUSD          *USD   `json:"costUsd"`
}

// Result is the answer to a native call.
type Result struct {
	CallID       string     `json:"callId"`
	Content      string     `json:"content"`
	ToolCalls    []ToolCall `json:"toolCalls,omitempty"`
	FinishReason string     `json:"finishReason"`
	Provider     string     `json:"provider"`
	// Model is canonical; ModelRaw is what the provider said.
	Model        string   `json:"model"`
	ModelRaw     string   `json:"modelRaw"`
	Tier         string   `json:"tier"`
	Class        string   `json:"class"`
	Process      string   `json:"process"`
	Subscription string   `json:"subscription"`
	Usage        Usage    `json:"usage"`
	CostUSD      *USD     `json:"costUsd"`
	Cached       bool     `json:"cached"`
	Local        bool     `json:"local"`
	Mock         bool     `json:"mock"`
	Warnings     []string `json:"warnings,omitempty"`
	// LatencyMs is the provider's time, QueuedMs the time in line, OverheadMs
	// everything else of the call: Sluice's own.
	LatencyMs  float64   `json:"latencyMs"`
	QueuedMs   float64   `json:"queuedMs"`
	OverheadMs float64   `json:"overheadMs"`
	Attempts   []Attempt `json:"attempts"`
}

// Kinds of native stream events.
const (
	EventDelta    = "delta"
	EventToolCall = "tool_call"
	EventResult   = "result"
	// EventPing is a sign of life that a provider may send while it thinks; it is
	// not passed on.
	EventPing = "ping"
)

// Event is one message of a native stream: a delta, a whole tool call, or the
// result, which comes last and holds everything.
type Event struct {
	Type     string    `json:"type"`
	Content  string    `json:"content,omitempty"`
	ToolCall *ToolCall `json:"toolCall,omitempty"`
	Result   *Result   `json:"-"`
}

// MarshalJSON writes the result's fields beside the type.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.Type == EventResult && e.Result != nil {
		return json.Marshal(struct {
			Type string `json:"type"`
			*Result
		}{e.Type, e.Result})
	}
	type plain Event
	return json.Marshal(plain(e))
}

// UnmarshalJSON reads any event.
func (e *Event) UnmarshalJSON(b []byte) error {
	type plain Event
	if err := json.Unmarshal(b, (*plain)(e)); err != nil {
		return err
	}
	e.Result = nil
	if e.Type == EventResult {
		e.Content = ""
		e.Result = &Result{}
		return json.Unmarshal(b, e.Result)
	}
	return nil
}

// USD is money in integer micro-dollars. In JSON it is a number of dollars.
type USD int64

// MarshalJSON writes dollars with up to six decimals.
func (u USD) MarshalJSON() ([]byte, error) { return []byte(u.String()), nil }

// String is the amount in dollars, as short as it can be.
func (u USD) String() string {
	sign := ""
	n := uint64(u)
	if u < 0 {
		sign, n = "-", uint64(-u)
	}
	if n%1e6 == 0 {
		return sign + strconv.FormatUint(n/1e6, 10)
	}
	frac := fmt.Sprintf("%06d", n%1e6)
	return sign + strconv.FormatUint(n/1e6, 10) + "." + string(bytes.TrimRight([]byte(frac), "0"))
}

// UnmarshalJSON reads a number of dollars.
func (u *USD) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return fmt.Errorf("an amount in dollars, not %q", b)
	}
	if f = math.Round(f * 1e6); math.Abs(f) > 1<<62 {
		return fmt.Errorf("an amount in dollars within bounds, not %q", b)
	}
	*u = USD(f)
	return nil
}

// Kinds of accounts, as usage records name them.
const (
	SubscriptionCopilot = "copilot-subscription"
	SubscriptionMax     = "max-subscription"
	SubscriptionAPIKey  = "api-key"
	SubscriptionLocal   = "local"
	SubscriptionMock    = "mock"
)

// HasMeteredTwin reports whether a kind of account is a subscription of which it can
// be said what a call saved: on any other there is nothing that it could have.
func HasMeteredTwin(account string) bool {
	return account == SubscriptionMax || account == SubscriptionCopilot
}

// TimeFormat is RFC 3339 with milliseconds, used in UTC.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"

// Time is a moment written by TimeFormat in UTC.
type Time struct{ time.Time }

// MarshalJSON writes the moment by TimeFormat, in UTC.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat([]byte{'"'}, TimeFormat+`"`), nil
}

// UsageRecord is one call in the usage log: one per call that reached a
// provider or the cache. It is the payload of llm.usage.<provider>.<process>.
type UsageRecord struct {
	ID        string `json:"id"`
	Timestamp Time   `json:"timestamp"`
	Provider  string `json:"provider"`
	Model     string `json:"model"`
	ModelRaw  string `json:"model_raw"`
	Process   string `json:"process"`
	Task      string `json:"task"`
	Class     string `json:"class"`
	Tier      string `json:"tier"`
	// Subscription is the kind of account: one of the Subscription constants.
	Subscription     string `json:"subscription"`
	InputTokens      int64  `json:"input_tokens"`
	OutputTokens     int64  `json:"output_tokens"`
	TotalTokens      int64  `json:"total_tokens"`
	CacheReadTokens  int64  `json:"cache_read_tokens"`
	CacheWriteTokens int64  `json:"cache_write_tokens"`
	ReasoningTokens  int64  `json:"reasoning_tokens"`
	TokensEstimated  bool   `json:"tokens_estimated"`
	// CostUSD is null when the price is not known.
	CostUSD *USD `json:"cost_usd"`
	// SavedUSD is what the tokens would have cost on the metered twin; null when not known.
	SavedUSD   *USD    `json:"saved_usd"`
	LatencyMs  float64 `json:"latency_ms"`
	QueuedMs   float64 `json:"queued_ms"`
	OverheadMs float64 `json:"overhead_ms"`
	Cached     bool    `json:"cached"`
	Partial    bool    `json:"partial"`
	// Outcome is "ok" or an error kind.
	Outcome string `json:"outcome"`
	// ChainPosition is the served candidate's place among those of the decision, 0 = the first choice.
	ChainPosition int       `json:"chain_position"`
	AttemptTrail  []Attempt `json:"attempt_trail"`
	PromptPreview string    `json:"prompt_preview"`
	// RunID and BatchID are the request's; left out when it named none.
	RunID   string `json:"run_id,omitempty"`
	BatchID string `json:"batch_id,omitempty"`
}

// UsageTotals sums usage records.
type UsageTotals struct {
	Calls            int64 `json:"calls"`
	Errors           int64 `json:"errors"`
	Cached           int64 `json:"cached"`
	InputTokens      int64 `json:"inputTokens"`
	OutputTokens     int64 `json:"outputTokens"`
	TotalTokens      int64 `json:"totalTokens"`
	CacheReadTokens  int64 `json:"cacheReadTokens"`
	CacheWriteTokens int64 `json:"cacheWriteTokens"`
	ReasoningTokens  int64 `json:"reasoningTokens"`
	// RetriedTokens are the total tokens of tries that failed while a later try of
	// the same call gave its outcome: they are in the sums above, under the
	// provider and model of the try, and in no record's own tokens.
	RetriedTokens int64 `json:"retriedTokens"`
	// Estimated counts the calls, and the tries of RetriedTokens, whose tokens are
	// estimates.
	Estimated int64 `json:"estimated"`
	// CostUSD and SavedUSD are sums of what is known: what the next fields count is
	// not in them.
	CostUSD  USD `json:"costUsd"`
	SavedUSD USD `json:"savedUsd"`
	// Unpriced counts the calls, and the tries of RetriedTokens, whose cost is not
	// known, UnpricedTokens their total tokens, and SavedUnknown the calls on a
	// subscription for which it is not known what they saved.
	Unpriced       int64   `json:"unpriced"`
	UnpricedTokens int64   `json:"unpricedTokens"`
	SavedUnknown   int64   `json:"savedUnknown"`
	AvgLatencyMs   float64 `json:"avgLatencyMs"`
	AvgQueuedMs    float64 `json:"avgQueuedMs"`
}

// UsageShare is one row of a breakdown.
type UsageShare struct {
	Name string `json:"name"`
	UsageTotals
	// Share is this row's part of the window's total tokens, 0 to 1 (of the
	// calls, where no tokens were used).
	Share float64 `json:"share"`
}

// UsageBucket is one step of the timeline.
type UsageBucket struct {
	Start Time `json:"start"`
	UsageTotals
	ByProvider map[string]int64 `json:"byProvider"`
	ByProcess  map[string]int64 `json:"byProcess"`
	ByModel    map[string]int64 `json:"byModel"`
}

// UsageQuery asks for a summary.
type UsageQuery struct {
	// Hours is the window, back from now; 1 to 24*3660, default 24.
	Hours int `json:"hours,omitempty"`
	// BucketMinutes is the timeline's step, 1 to 44,640; 0 = the smallest that
	// gives at most 500 buckets. A step that would give more than 1,500 is refused.
	BucketMinutes int `json:"bucketMinutes,omitempty"`
}

// UsageSummary is the answer: the window [From, To) and its sums.
type UsageSummary struct {
	From          Time          `json:"from"`
	To            Time          `json:"to"`
	Hours         int           `json:"hours"`
	BucketMinutes int           `json:"bucketMinutes"`
	Totals        UsageTotals   `json:"totals"`
	ByProvider    []UsageShare  `json:"byProvider"`
	ByProcess     []UsageShare  `json:"byProcess"`
	ByModel       []UsageShare  `json:"byModel"`
	Timeline      []UsageBucket `json:"timeline"`
}

// RecentQuery asks for the newest rows: Limit 1 to MaxRecent, default 50.
type RecentQuery struct {
	Limit int `json:"limit,omitempty"`
}

// RecentUsage is the answer, newest first.
type RecentUsage struct {
	Calls []json.RawMessage `json:"calls"`
}

// PoolSaturatedEvent says that a call's wait for a slot passed 500 ms. It is
// sent while the call still waits, at most once a second per pool and class.
type PoolSaturatedEvent struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Class    string `json:"class"`
	WaitedMs int64  `json:"waitedMs"`
	Active   int    `json:"active"`
	Queued   int    `json:"queued"`
	Cap      int    `json:"cap"`
	// Suppressed counts the waits that passed the mark since the last event and got none.
	Suppressed int  `json:"suppressed"`
	At         Time `json:"at"`
}

// CancelRequest is the payload of llm.cancel.
type CancelRequest struct {
	CallID string `json:"callId"`
}
