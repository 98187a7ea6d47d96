package vendors

import "net/http"

// anError is the API's error object; details are null where code is "".
func anError(kind, message, code string) []byte {
	e := object{"type": kind, "message": message, "details": nil}
	if code != "" {
		e["details"] = object{"error_code": code, "error_visibility": "user_facing"}
	}
	return marshal(object{"type": "error", "error": e, "request_id": "req_011fake"})
}

const anBadRequest = "invalid_request_error"

// Fault implements Voice.
func (v Anthropic) Fault(s *Seen, f Fault) (status int, header http.Header, body []byte, ok bool) {
	switch f {
	case Unauthorized:
		text := "invalid x-api-key: " + KeyMark
		if v.OAuth {
			text = "OAuth token has expired. Please obtain a new token or refresh your existing token. (" + KeyMark + ")"
		}
		return http.StatusUnauthorized, nil, anError("authentication_error", text, ""), true
	case Forbidden:
		return http.StatusForbidden, nil, anError("permission_error", "Your API key does not have permission to use the specified resource.", ""), true
	case RateLimited:
		return http.StatusTooManyRequests, wait2s(), anError("rate_limit_error", "This request would exceed your organization's rate limit of 50 requests per minute.", ""), true
	case Quota:
		return http.StatusTooManyRequests, nil, anError("rate_limit_error", "You have reached your organization's monthly spend cap.", "enforced_spend_limit_reached"), true
	case ContextLength:
		return http.StatusBadRequest, nil, anError(anBadRequest, "prompt is too long: 210000 tokens > 200000 maximum", ""), true
	case Policy:
		return http.StatusBadRequest, nil, anError(anBadRequest, "Output blocked by content filtering policy", ""), true
	case Overloaded:
		return 529, nil, anError("overloaded_error", "Overloaded", ""), true
	case ServerError:
		return http.StatusInternalServerError, nil, anError("api_error", "Internal server error", ""), true
	case NoModel:
		return http.StatusNotFound, nil, anError("not_found_error", "model: "+s.Model, ""), true
	case BadRequest:
		return http.StatusBadRequest, nil, anError(anBadRequest, "temperature: Input should be a valid number, unable to parse string as a number", ""), true
	case TooLarge:
		return http.StatusRequestEntityTooLarge, nil, anError("request_too_large", "Request exceeds the maximum size", ""), true
	case Timeout:
		return http.StatusGatewayTimeout, nil, anError("timeout_error", "Request timed out", ""), true
	case NoFault, HTMLPage, PlainText, NoPath, Redirect:
	}
	return 0, nil, nil, false
}

// InStream implements Voice. What is wrong with the request is said before a
// stream begins.
func (v Anthropic) InStream(f Fault) []byte {
	switch f {
	case RateLimited, Quota, Policy, Overloaded, ServerError, Timeout:
		_, _, body, _ := v.Fault(&Seen{}, f)
		return sse("error", body)
	case NoFault, Unauthorized, Forbidden, ContextLength, NoModel, BadRequest, TooLarge, HTMLPage, PlainText, NoPath, Redirect:
	}
	return nil
}
