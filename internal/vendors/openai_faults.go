package vendors

import "net/http"

// oaError is the API's error object. code is null where it is "".
func oaError(message, kind, param, code string) []byte {
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return marshal(object{"error": object{"message": message, "type": kind, "param": orNull(param), "code": orNull(code)}})
}

func plain(text string) (http.Header, []byte) {
	return http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, []byte(text + "\n")
}

func wait2s() http.Header { return http.Header{"Retry-After": {"2"}} }

// Fault implements Voice.
func (v OpenAI) Fault(s *Seen, f Fault) (status int, header http.Header, body []byte, ok bool) {
	if f >= HTMLPage {
		return 0, nil, nil, false
	}
	switch v.Host {
	case HostCopilot:
		status, header, body = copilotFault(f)
	case HostGroq:
		status, header, body = groqFault(s, f)
	case HostGitHubModels:
		status, header, body = githubFault(s, f)
	case HostLlama:
		status, header, body = llamaFault(s, f)
	case HostOpenAI:
		status, header, body = openAIFault(s, f)
	}
	if status == 0 && body == nil && v.Host != HostLlama {
		status, header, body = openAIFault(s, f)
	}
	return status, header, body, status != 0
}

// openAIFault writes the errors of api.openai.com.
func openAIFault(s *Seen, f Fault) (int, http.Header, []byte) {
	switch f {
	case Unauthorized:
		return http.StatusUnauthorized, nil, oaError("Incorrect API key provided: "+KeyMark+". You can find your API key at https://platform.openai.com/account/api-keys.", "invalid_request_error", "", "invalid_api_key")
	case Forbidden:
		return http.StatusForbidden, nil, oaError("Country, region, or territory not supported", "request_forbidden", "", "unsupported_country_region_territory")
	case RateLimited:
		return http.StatusTooManyRequests, wait2s(), oaError("Rate limit reached for "+s.Model+" in organization org-fake on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 2s.", "requests", "", "rate_limit_exceeded")
	case Quota:
		return http.StatusTooManyRequests, nil, oaError("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota", "", "insufficient_quota")
	case ContextLength:
		return http.StatusBadRequest, nil, oaError("This model's maximum context length is 128000 tokens. However, your messages resulted in 150000 tokens. Please reduce the length of the messages.", "invalid_request_error", "messages", "context_length_exceeded")
	case Policy:
		return http.StatusBadRequest, nil, oaError("Invalid prompt: your prompt was flagged as potentially violating our usage policy.", "invalid_request_error", "", "invalid_prompt")
	case Overloaded:
		return http.StatusServiceUnavailable, nil, oaError("The engine is currently overloaded, please try again later", "server_error", "", "")
	case ServerError:
		return http.StatusInternalServerError, nil, oaError("The server had an error processing your request. Sorry about that!", "server_error", "", "")
	case NoModel:
		return http.StatusNotFound, nil, oaError("The model `"+s.Model+"` does not exist or you do not have access to it.", "invalid_request_error", "", "model_not_found")
	case BadRequest:
		return http.StatusBadRequest, nil, oaError("Invalid type for 'temperature': expected a decimal, but got a string instead.", "invalid_request_error", "temperature", "invalid_type")
	case TooLarge:
		return http.StatusRequestEntityTooLarge, nil, oaError("Maximum content size limit exceeded.", "invalid_request_error", "", "")
	case Timeout:
		return http.StatusGatewayTimeout, nil, oaError("Timed out generating response. Please try again.", "server_error", "", "")
	}
	return 0, nil, nil
}

// copilotFault writes those that api.githubcopilot.com has of its own.
func copilotFault(f Fault) (int, http.Header, []byte) {
	switch f {
	case Unauthorized:
		h, body := plain("unauthorized: token expired")
		return http.StatusUnauthorized, h, body
	case Forbidden:
		h, body := plain("unauthorized: not licensed to use Copilot")
		return http.StatusForbidden, h, body
	case RateLimited:
		h := wait2s()
		h.Set("X-Ratelimit-User-Retry-After", "2")
		h.Set("X-Ratelimit-Exceeded", "user_global")
		return http.StatusTooManyRequests, h, marshal(object{"error": object{"message": "Sorry, you have exceeded your rate limit. Please wait a moment before trying again.", "code": "user_global_rate_limited:pro"}})
	case Quota:
		return http.StatusPaymentRequired, http.Header{"Retry-After": {"Wed, 01 Jan 2031 00:00:00 GMT"}}, marshal(object{"error": object{"message": "You have no quota", "code": "quota_exceeded"}})
	case ContextLength:
		return http.StatusBadRequest, nil, marshal(object{"error": object{"message": "prompt token count of 150000 exceeds the limit of 128000", "code": "model_max_prompt_tokens_exceeded"}})
	case Policy:
		return http.StatusUnprocessableEntity, nil, marshal(object{"error": object{"message": "The response was filtered due to the prompt triggering our content management policy.", "code": "content_filter"}})
	case NoModel:
		return http.StatusBadRequest, nil, marshal(object{"error": object{"message": "The requested model is not supported.", "code": "model_not_supported", "param": "model", "type": "invalid_request_error"}})
	case Overloaded:
		return http.StatusServiceUnavailable, nil, marshal(object{"error": object{"message": "The model is overloaded.", "code": "model_overloaded"}})
	}
	return 0, nil, nil
}

// groqFault writes those that api.groq.com has of its own: no code for many.
func groqFault(s *Seen, f Fault) (int, http.Header, []byte) {
	switch f {
	case Unauthorized:
		return http.StatusUnauthorized, nil, oaError("Invalid API Key", "invalid_request_error", "", "invalid_api_key")
	case Forbidden:
		return http.StatusForbidden, nil, marshal(object{"error": object{"message": "Access denied. Please check your network settings."}})
	case RateLimited:
		return http.StatusTooManyRequests, wait2s(), oaError("Rate limit reached for model `"+s.Model+"` in organization `org_fake` service tier `on_demand` on tokens per minute (TPM): Limit 15000, Used 11972, Requested 4351. Please try again in 2s.", "tokens", "", "rate_limit_exceeded")
	case Quota:
		return http.StatusTooManyRequests, http.Header{"Retry-After": {"3600"}}, oaError("You exceeded your current quota: the organization's spend limit was reached.", "insufficient_quota", "", "insufficient_quota")
	case ContextLength:
		return http.StatusBadRequest, nil, oaError("Please reduce the length of the messages or completion.", "invalid_request_error", "messages", "context_length_exceeded")
	case Policy:
		return http.StatusBadRequest, nil, oaError("The request was flagged.", "invalid_request_error", "", "content_policy_violation")
	case Overloaded:
		return http.StatusServiceUnavailable, nil, marshal(object{"error": object{"message": s.Model + " is currently over capacity. Please try again and back off exponentially.", "type": "internal_server_error"}})
	case ServerError:
		return http.StatusInternalServerError, nil, marshal(object{"error": object{"message": "Internal Server Error", "type": "internal_server_error"}})
	case TooLarge:
		return http.StatusRequestEntityTooLarge, nil, marshal(object{"error": object{"message": "Request Entity Too Large", "type": "invalid_request_error", "code": "request_too_large"}})
	}
	return 0, nil, nil
}

// githubFault writes those of models.github.ai: a code and no type.
func githubFault(s *Seen, f Fault) (int, http.Header, []byte) {
	own := func(code, message string) []byte {
		return marshal(object{"error": object{"code": code, "message": message, "details": message}})
	}
	switch f {
	case Unauthorized:
		return http.StatusUnauthorized, nil, own("unauthorized", "Bad credentials")
	case Forbidden:
		return http.StatusForbidden, nil, own("no_access", "No access to model: "+s.Model)
	case RateLimited:
		return http.StatusTooManyRequests, http.Header{"Retry-After": {"2"}, "X-Ratelimit-Type": {"UserByModelByMinute"}, "X-Ratelimit-Timeremaining": {"2"}}, own("RateLimitReached", "Rate limit of 15 per 60s exceeded for UserByModelByMinute. Please wait 2 seconds before retrying.")
	case Quota:
		return http.StatusTooManyRequests, http.Header{"Retry-After": {"52220"}, "X-Ratelimit-Type": {"UserByModelByDay"}}, own("RateLimitReached", "Rate limit of 50 per 86400s exceeded for UserByModelByDay. Please wait 52220 seconds before retrying.")
	case ContextLength:
		return http.StatusRequestEntityTooLarge, nil, own("tokens_limit_reached", "Request body too large for "+s.Model+" model. Max size: 8000 tokens.")
	case Policy:
		return http.StatusBadRequest, nil, marshal(object{"error": object{
			"message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.", "type": nil, "param": "prompt", "code": "content_filter", "status": 400,
			"innererror": object{"code": "ResponsibleAIPolicyViolation"},
		}})
	case NoModel:
		return http.StatusBadRequest, nil, own("unknown_model", "Unknown model: "+s.Model)
	case ServerError:
		return http.StatusInternalServerError, nil, own("InternalServerError", "An internal error has occurred.")
	}
	return 0, nil, nil
}

// llamaFault writes those of llama.cpp's server, and of Docker's runner in front
// of it, which are plain text. Neither knows keys, quotas or policies.
func llamaFault(_ *Seen, f Fault) (int, http.Header, []byte) {
	own := func(code int, message, kind string) []byte {
		return marshal(object{"error": object{"code": code, "message": message, "type": kind}})
	}
	switch f {
	case ContextLength:
		return http.StatusBadRequest, nil, marshal(object{"error": object{
			"code": 400, "message": "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",
			"type": "exceed_context_size_error", "n_prompt_tokens": 9412, "n_ctx": 8192,
		}})
	case Overloaded:
		return http.StatusServiceUnavailable, nil, own(503, "Loading model", "unavailable_error")
	case ServerError:
		h, body := plain("unable to load runner: error waiting for runner to be ready: context deadline exceeded")
		return http.StatusInternalServerError, h, body
	case NoModel:
		h, body := plain("error while loading model: model not found")
		return http.StatusNotFound, h, body
	case BadRequest:
		return http.StatusBadRequest, nil, own(400, "\"messages\" must be an array", "invalid_request_error")
	case TooLarge:
		h, body := plain("request too large")
		return http.StatusRequestEntityTooLarge, h, body
	}
	return 0, nil, nil
}

// InStream implements Voice.
func (v OpenAI) InStream(f Fault) []byte {
	var body []byte
	switch f {
	case Overloaded, ServerError:
		body = oaError("The server had an error while processing your request.", "server_error", "", "")
		if v.Host == HostLlama {
			body = marshal(object{"error": object{"code": 500, "message": "Compute error.", "type": "server_error"}})
		}
	case RateLimited:
		if v.Host == HostLlama {
			return nil
		}
		body = oaError("Rate limit reached.", "tokens", "", "rate_limit_exceeded")
	case ContextLength:
		body = oaError("This model's maximum context length is 128000 tokens.", "invalid_request_error", "messages", "context_length_exceeded")
		if v.Host == HostLlama {
			body = marshal(object{"error": object{"code": 400, "message": "the request exceeds the available context size", "type": "exceed_context_size_error"}})
		}
	default:
		return nil
	}
	if v.Host == HostGroq {
		return sse("error", body)
	}
	return sse("", body)
}
