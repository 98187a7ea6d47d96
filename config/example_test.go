package config_test

import (
	"fmt"

	"github.com/sluice-llm/sluice/config"
)

func ExampleLoad() {
	c, err := config.Load(config.Options{
		Environ: []string{"OPENAI_API_KEY=sk-not-shown", "LLM_MAX_RPM_OPENAI=3"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Providers["openai"].APIKey, c.Pools.Cap("openai", "gpt-5.4"), c.Pools.Cap("groq", "llama"))
	// Output: *** 3 8
}

func ExampleLoad_faults() {
	_, err := config.Load(config.Options{
		File:     "llm.yaml",
		ReadFile: func(string) ([]byte, error) { return []byte("mode: publc\npools:\n  max_ques: 5\n"), nil },
		Environ:  []string{"LLM_INGESTION_SLOTS=0"},
	})
	fmt.Println(err)
	// Output:
	// llm.yaml:1:7: mode: found "publc"; must be one of mock, local, public (did you mean "public"?)
	// llm.yaml:3:3: pools.max_ques: unknown key (did you mean "max_queue"?)
	// environment: LLM_INGESTION_SLOTS: found "0"; must be a whole number from 1 to 1000000 in plain digits; set one, or unset it for the default
}
