// Asks Sluice through the OpenAI SDK: node openai_sdk.mjs "What is an actor?" (STREAM=1: as it comes)
import OpenAI from "openai";

const { env } = process;
const client = new OpenAI({
  baseURL: env.SLUICE_URL ?? "http://127.0.0.1:12435/v1",
  apiKey: env.SLUICE_HTTP_TOKEN ?? "none",
  defaultHeaders: {
    "X-LLM-Process": env.PROCESS ?? "openai-node-example",
    "X-LLM-Class": env.CLASS ?? "interactive",
  },
});
const request = {
  model: env.MODEL ?? "auto", // a tier, auto, provider/model, or an id that a provider serves
  messages: [{ role: "user", content: process.argv.slice(2).join(" ") }],
};
if (env.STREAM) {
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
  }
  console.log();
} else {
  const answer = await client.chat.completions.create(request);
  console.log(answer.choices[0].message.content);
  console.error(`${answer.model}, ${answer.usage.total_tokens} tokens`);
}
