package vendors

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// Gemini speaks generateContent of generativelanguage.googleapis.com, v1beta. The
// answers are those of the vendor's Go SDK (its types) and of public recordings:
// whole answers are laid out over many lines, counts of nought are not written,
// the last event of a stream has an empty text beside its finish reason, and
// thoughts stand outside the candidate's count. What it refuses is what the API
// was seen to refuse, with 400.
type Gemini struct {
	// Base is the path before /models, such as "/v1beta".
	Base string
	// NoIDs leaves the ids of function calls out, as models before Gemini 3 do.
	NoIDs bool
}

var _ interface {
	Voice
	Prober
} = Gemini{}

// Traits implements Voice.
func (v Gemini) Traits() Traits {
	return Traits{
		CacheRead: true, Reasoning: true, CallIDs: !v.NoIDs, NoEnd: true,
		Finishes: []string{FinishStop, FinishLength, FinishCalls, FinishFilter},
		Header: http.Header{
			"Server-Timing":          {"gfet4t7; dur=412"},
			"X-Content-Type-Options": {"nosniff"},
			"Vary":                   {"Origin", "X-Origin", "Referer"},
		},
	}
}

// ContentType implements Voice.
func (v Gemini) ContentType(stream bool) string {
	if stream {
		return "text/event-stream"
	}
	return geminiJSON
}

const geminiJSON = "application/json; charset=UTF-8"

// Probe implements Prober: the list of models.
func (v Gemini) Probe(r *http.Request) ([]byte, bool) {
	return []byte(`{"models":[{"name":"models/gemini-2.5-flash","version":"001","displayName":"Gemini 2.5 Flash","inputTokenLimit":1048576,"outputTokenLimit":65536,"supportedGenerationMethods":["generateContent","countTokens"]}]}`),
		r.URL.EscapedPath() == v.Base+"/models"
}

// geminiReasons are the API's words for the finish reasons: it has none for a
// turn that ends with calls.
var geminiReasons = map[string]string{
	FinishStop: "STOP", FinishCalls: "STOP", FinishLength: "MAX_TOKENS", FinishFilter: "SAFETY",
}

// geminiSignature is what stands for a thought signature.
const geminiSignature = "EjQKMgEMfakefakefakefakefakefakefakefakefakefakefakefakefakefakefake"

func (v Gemini) candidate(s *Seen, a *Answer, parts []any, finish string) object {
	c := object{"index": 0}
	if len(parts) > 0 {
		c["content"] = object{"role": "model", "parts": parts}
	}
	if finish != "" {
		c["finishReason"] = finish
	}
	if finish == "SAFETY" {
		c["safetyRatings"] = []any{object{"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH", "blocked": true}}
	}
	return object{"candidates": []any{c}, "modelVersion": a.ModelOf(s), "responseId": "Il0taoSYJ5Cez7IPfake"}
}

// usage has the cached tokens inside the prompt's and the thoughts outside the
// candidate's. part is what has been written by then, of the whole.
func (v Gemini) usage(u Usage, written int64) object {
	prompt := u.Fresh + u.CacheRead
	o := object{"totalTokenCount": prompt + written + u.Reasoning}
	for name, n := range map[string]int64{
		"promptTokenCount": prompt, "cachedContentTokenCount": u.CacheRead,
		"candidatesTokenCount": written, "thoughtsTokenCount": u.Reasoning,
	} {
		if n > 0 {
			o[name] = n
		}
	}
	if prompt > 0 {
		o["promptTokensDetails"] = []any{object{"modality": "TEXT", "tokenCount": prompt}}
	}
	return o
}

// call writes a function call; the first of a turn has the signature.
func (v Gemini) call(c Call, first bool) object {
	f := object{"name": c.Name}
	if c.Arguments != "" {
		f["args"] = json.RawMessage(c.Arguments)
	}
	if !v.NoIDs {
		f["id"] = c.ID
	}
	o := object{"functionCall": f}
	if first {
		o["thoughtSignature"] = geminiSignature
	}
	return o
}

// Whole implements Voice.
func (v Gemini) Whole(s *Seen, a *Answer) []byte {
	var parts []any
	if a.Reasoning != "" {
		parts = append(parts, object{"text": a.Reasoning, "thought": true})
	}
	if text := a.Text(); text != "" {
		parts = append(parts, object{"text": text})
	}
	for i, c := range a.Calls {
		parts = append(parts, v.call(c, i == 0))
	}
	o := v.candidate(s, a, parts, geminiReasons[a.End()])
	if !a.NoUsage {
		o["usageMetadata"] = v.usage(a.Usage, a.Usage.Output-a.Usage.Reasoning)
	}
	var wide bytes.Buffer
	if err := json.Indent(&wide, marshal(o), "", "  "); err != nil {
		panic(err) // a mistake in this package
	}
	wide.WriteByte('\n')
	return wide.Bytes()
}

// Events implements Voice.
func (v Gemini) Events(s *Seen, a *Answer) [][]byte {
	var all [][]byte
	pieces := int64(len(a.Pieces) + len(a.Calls) + 1)
	add := func(part object, finish string) {
		o := v.candidate(s, a, []any{part}, finish)
		if !a.NoUsage {
			whole := a.Usage.Output - a.Usage.Reasoning
			written := whole * int64(len(all)) / pieces // running totals, up to the last
			if finish != "" {
				written = whole
			}
			o["usageMetadata"] = v.usage(a.Usage, written)
		}
		all = append(all, sse("", marshal(o)))
	}
	if a.Reasoning != "" {
		add(object{"text": a.Reasoning, "thought": true}, "")
	}
	for _, p := range a.Pieces {
		add(object{"text": p}, "")
	}
	for i, c := range a.Calls {
		add(v.call(c, i == 0), "")
	}
	add(object{"text": "", "thoughtSignature": geminiSignature}, geminiReasons[a.End()])
	return all
}

// rpcStatus is the API's error.
func rpcStatus(code int, status, message string, details ...any) []byte {
	o := object{"code": code, "message": message, "status": status}
	if len(details) > 0 {
		o["details"] = details
	}
	return marshal(object{"error": o})
}

func rpcDetail(kind string, more object) object {
	more["@type"] = "type.googleapis.com/google.rpc." + kind
	return more
}

func rpcReason(reason string) object {
	return rpcDetail("ErrorInfo", object{"reason": reason, "domain": "googleapis.com", "metadata": object{"service": "generativelanguage.googleapis.com"}})
}

// exhausted is a 429 of one limit.
func (v Gemini) exhausted(model, id, wait string, limit int) []byte {
	const metric = "generativelanguage.googleapis.com/generate_content_free_tier_requests"
	return rpcStatus(http.StatusTooManyRequests, "RESOURCE_EXHAUSTED",
		"You exceeded your current quota, please check your plan and billing details. For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.\n* Quota exceeded for metric: "+metric+", limit: "+strconv.Itoa(limit)+", model: "+model+"\nPlease retry in "+wait+".",
		rpcDetail("QuotaFailure", object{"violations": []any{object{
			"quotaMetric": metric, "quotaId": id, "quotaValue": strconv.Itoa(limit),
			"quotaDimensions": object{"location": "global", "model": model},
		}}}),
		rpcDetail("Help", object{"links": []any{object{"description": "Learn more about Gemini API quotas", "url": "https://ai.google.dev/gemini-api/docs/rate-limits"}}}),
		rpcDetail("RetryInfo", object{"retryDelay": wait}))
}

// Fault implements Voice. A prompt that is not allowed is a success without
// candidates.
func (v Gemini) Fault(s *Seen, f Fault) (status int, header http.Header, body []byte, ok bool) {
	switch f {
	case Unauthorized:
		status, body = 400, rpcStatus(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", rpcReason("API_KEY_INVALID"))
	case Forbidden:
		status, body = 403, rpcStatus(403, "PERMISSION_DENIED", "Permission denied: Consumer 'api_key:"+KeyMark+"' has been suspended.", rpcReason("CONSUMER_SUSPENDED"))
	case RateLimited:
		status, body = 429, v.exhausted(s.Model, "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "2s", 10)
	case Quota:
		status, body = 429, v.exhausted(s.Model, "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "38.5s", 250)
	case ContextLength:
		status, body = 400, rpcStatus(400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).")
	case Policy:
		status, body = 200, marshal(object{
			"promptFeedback": object{"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": s.Model,
			"usageMetadata": object{"promptTokenCount": 11, "totalTokenCount": 11},
		})
		if s.Stream {
			header, body = http.Header{"Content-Type": {v.ContentType(true)}}, sse("", body)
		}
	case Overloaded:
		status, body = 503, rpcStatus(503, "UNAVAILABLE", "The model is overloaded. Please try again later.")
	case ServerError:
		status, body = 500, rpcStatus(500, "INTERNAL", "An internal error has occurred. Please retry or report in https://developers.generativeai.google/guide/troubleshooting")
	case NoModel:
		status, body = 404, rpcStatus(404, "NOT_FOUND", "models/"+s.Model+" is not found for API version v1beta, or is not supported for generateContent. Call ListModels to see the list of available models and their supported methods.")
	case BadRequest:
		status, body = 400, rpcStatus(400, "INVALID_ARGUMENT", "Invalid value at 'generation_config.temperature' (TYPE_FLOAT), \"hot\"",
			rpcDetail("BadRequest", object{"fieldViolations": []any{object{"field": "generation_config.temperature", "description": "Invalid value at 'generation_config.temperature' (TYPE_FLOAT), \"hot\""}}}))
	case TooLarge:
		status, body = 400, rpcStatus(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes.")
	case Timeout:
		status, body = 504, rpcStatus(504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete.")
	default:
		return 0, nil, nil, false
	}
	return status, header, body, true
}

// InStream implements Voice.
func (v Gemini) InStream(f Fault) []byte {
	switch f {
	case Overloaded, ServerError, RateLimited:
		_, _, body, _ := v.Fault(&Seen{Model: "gemini-2.5-flash"}, f)
		return sse("", body)
	}
	return nil
}

// geminiVersion is the version of a model's id, major*100+minor; 0 = it has none.
func geminiVersion(model string) int {
	rest, _ := strings.CutPrefix(model, "gemini-")
	version, _, _ := strings.Cut(rest, "-")
	major, minor, _ := strings.Cut(version, ".")
	m, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(minor)
	return m*100 + n
}
