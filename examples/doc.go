// Package examples holds programs that call Sluice, each under 40 lines, in the
// languages that callers use, one that serves it (python/outside.py), and three
// that it asks (python/hook_*.py, docs/hooks.md). Its
// tests run every one of them against a live node. They take their settings from
// the environment:
//
//	NATS_URL           where the node's NATS server is; default nats://127.0.0.1:4222
//	SLUICE_URL         where the node's OpenAI route is; default http://127.0.0.1:12435/v1
//	SLUICE_HTTP_TOKEN  the token of a node that listens beyond loopback
//	CLASS              interactive (the default) or ingestion
//	PROCESS            the name in the usage log
//	PROVIDER, MODEL    an account to try first (NATS), a model (OpenAI SDK)
//	STREAM             1 = print the answer as it comes
//	NAME, CAPS, PAUSE  of python/outside.py: the provider's name, its calls at once,
//	                   the seconds between two letters
//	SUBJECT            of python/hook_*.py: where Sluice asks
//	SECRET, ONLY       of python/hook_sensitivity.py: a pattern of what is confidential,
//	                   and the providers that may see it
//	TOKENS, USD        of python/hook_budget.py: each process's limits
package examples
