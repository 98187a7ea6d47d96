// Package subjects is Sluice's contract with every caller: subject names,
// header names, messages, error kinds, and a Go client that uses nothing else.
//
// It imports no other package of Sluice and does no I/O outside Client. A
// program in another language needs only what this package spells out (see
// docs/subjects.md).
package subjects

import (
	"strings"
	"unicode/utf8"
)

// Workload classes: who is waiting for the answer. The class is part of the
// subject, so the right to be interactive is a NATS permission.
const (
	ClassInteractive = "interactive"
	ClassIngestion   = "ingestion"
)

// Classes lists the workload classes in order of precedence.
var Classes = []string{ClassInteractive, ClassIngestion}

// ValidClass reports whether class is a workload class of the contract.
func ValidClass(class string) bool {
	return class == ClassInteractive || class == ClassIngestion
}

// Tiers: how hard the work is.
const (
	TierFast     = "fast"
	TierStandard = "standard"
	TierPremium  = "premium"
)

// Tiers lists the tiers from the cheapest up.
var Tiers = []string{TierFast, TierStandard, TierPremium}

// Capabilities names what a call may need and a provider may lack.
var Capabilities = []string{
	"tools", "images", "documents", "audio", "json_object", "json_schema", "choices", "logprobs",
	"streaming", "image_urls", "tool_choice", "openai_chat",
}

// ValidTier reports whether tier is one of Tiers.
func ValidTier(tier string) bool {
	return tier == TierFast || tier == TierStandard || tier == TierPremium
}

// Fixed subjects. Those with a variable token are built by the functions below.
const (
	Cancel           = "llm.cancel"
	ProviderAnnounce = "llm.provider_announce"

	QueryHealth       = "llm.query.health"
	QueryProviders    = "llm.query.providers"
	QueryMetrics      = "llm.query.metrics"
	QueryRoute        = "llm.query.route"
	QueryUsageSummary = "llm.query.usage.summary"
	QueryUsageRecent  = "llm.query.usage.recent"
	// QueryModels answers what GET /v1/models shows. The contract has no subject
	// for it; the edge is an ordinary client and needs one.
	QueryModels = "llm.query.models"

	AdminQuotaReset = "llm.admin.quota.reset"
	AdminCacheClear = "llm.admin.cache.clear"
	AdminReload     = "llm.admin.reload"

	PoolSaturated = "llm.pool_saturated"
	// BudgetStatus is an event: a budget crossed a mark.
	BudgetStatus = "llm.budget"
	// ConfigStatus is an event: an edit of the configuration was taken over, or is
	// broken and changes nothing.
	ConfigStatus = "llm.config"
	// HookMock, HookBudget and HookSensitivity are asked by Sluice, of services that
	// the configuration's hooks name.
	HookMock        = "llm.hook.mock"
	HookBudget      = "llm.hook.budget"
	HookSensitivity = "llm.hook.sensitivity"
	// StoreStatus is an event: the usage log cannot be written, or can again.
	StoreStatus = "llm.store"

	// NodeStatus is between nodes only: which providers each hosts (actors/peers.go).
	NodeStatus = "llm.node.status"

	// ServiceName is the NATS micro service every node is an instance of.
	ServiceName = "llm"
	// QueueGroup is the queue group of all of a node's endpoints.
	QueueGroup = "q"

	// UsageStream is the JetStream stream of usage records.
	UsageStream = "LLM_USAGE"
	// UsageFilter is the subject filter of UsageStream.
	UsageFilter = "llm.usage.>"
)

// Request and reply headers. All request headers are optional.
const (
	HeaderWire        = "Llm-Wire"
	HeaderCallID      = "Llm-Call-Id"
	HeaderProcess     = "Llm-Process"
	HeaderTask        = "Llm-Task"
	HeaderTier        = "Llm-Tier"
	HeaderTimeoutMs   = "Llm-Timeout-Ms"
	HeaderSkipCache   = "Llm-Skip-Cache"
	HeaderProvider    = "Llm-Provider"
	HeaderCacheScope  = "Llm-Cache-Scope"
	HeaderRunID       = "Llm-Run-Id"
	HeaderBatchID     = "Llm-Batch-Id"
	HeaderTraceparent = "traceparent"

	// HeaderClass is read only where the subject has no class
	// (llm.provider.<provider>.complete).
	HeaderClass = "Llm-Class"

	// HeaderHops names the nodes whose proxy sent the call on, first to last, with
	// commas between them (X-LLM-Hops on HTTP). A node that finds itself among
	// them, or MaxHops of them, refuses the call: the proxies lead in a circle.
	HeaderHops = "Llm-Hops"

	// HeaderHop marks a call that one node sends on to another, which then keeps
	// no record of it. It counts only together with a reply inbox under NodeInbox,
	// where no caller may listen.
	HeaderHop = "Llm-Hop"
	// NodeInbox is the prefix of the nodes' own reply inboxes.
	NodeInbox = "_NODE"

	// TraceInbox is the prefix of where the server says who has a call of an outside
	// provider. Who answers the call may write there: some clients put the headers
	// of a request on its reply, and the server looks at the one that names this.
	TraceInbox = "_TRACE"
	// HeaderHopResult carries what the first node must know of a hop's answer.
	HeaderHopResult = "Llm-Hop-Result"

	// Reply headers.
	HeaderModel    = "Llm-Model"
	HeaderCached   = "Llm-Cached"
	HeaderWarnings = "Llm-Warnings"

	// Error headers of the NATS service protocol (ADR-32).
	HeaderErrorCode = "Nats-Service-Error-Code"
	HeaderError     = "Nats-Service-Error"
)

// Bounds on what a caller may send. A value outside is a VALIDATION_ERROR
// that names the field.
const (
	// MaxName bounds process, task, agentId, runId, batchId, provider and model, in bytes.
	MaxName = 256
	// MaxCallID bounds a call id, in bytes.
	MaxCallID = 128
	// MaxRecordID bounds a usage record's id: a call id, and "#n" for a later run.
	MaxRecordID = MaxCallID + 24
	// MaxTimeoutMs bounds a call's deadline: one hour.
	MaxTimeoutMs = 3_600_000
	// MaxHops bounds the Sluices that a call may come through.
	MaxHops = 4
	// MaxMessages bounds the messages of one request.
	MaxMessages = 10_000
	// MaxTools bounds the tools of one request.
	MaxTools = 1_024
	// MaxRecent bounds the rows of one "recent" query.
	MaxRecent = 10_000
)

// UnknownProcess is the process of a call that names none.
const UnknownProcess = "unknown"

// Complete returns the request subject of a workload class.
func Complete(class string) string { return "llm.complete." + class }

// Provider returns the subject of calls aimed at exactly one provider.
func Provider(provider string) string {
	return "llm.provider." + Token(provider) + ".complete"
}

// Breaker returns the event subject of a provider's circuit breaker.
func Breaker(provider string) string { return "llm.breaker." + Token(provider) }

// Quota returns the event subject of a provider's quota.
func Quota(provider string) string { return "llm.quota." + Token(provider) }

// HookStatus returns the event subject of an injection point (mock, budget,
// sensitivity): its service fails, or answers again.
func HookStatus(hook string) string { return "llm.hook_status." + Token(hook) }

// ProviderStatus returns the event subject of a provider's availability.
func ProviderStatus(provider string) string { return "llm.provider_status." + Token(provider) }

// UsageSubject returns the subject of one usage record.
func UsageSubject(provider, process string) string {
	return "llm.usage." + Token(provider) + "." + Token(process)
}

// UsageMsgID is the JetStream message id of a call's usage record. Ids are per
// stream, so the kind stands in front.
func UsageMsgID(callID string) string { return "usage:" + callID }

// Token writes s as one subject token: lower-case, with every character other
// than a-z 0-9 - _ as "_" ("claude-haiku-4.5" becomes "claude-haiku-4_5"). The
// empty string becomes "_". The payload always has the true name.
func Token(s string) string {
	if s == "" {
		return "_"
	}
	clean := true
	for i := 0; i < len(s); i++ {
		if !tokenByte(s[i]) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c >= utf8.RuneSelf:
			_, n := utf8.DecodeRuneInString(s[i:])
			i += n
			b.WriteByte('_')
			continue
		case c >= 'A' && c <= 'Z':
			b.WriteByte(c + 'a' - 'A')
		case tokenByte(c):
			b.WriteByte(c)
		default:
			b.WriteByte('_')
		}
		i++
	}
	return b.String()
}

func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}
