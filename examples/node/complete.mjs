// Asks Sluice over NATS: node complete.mjs "What is an actor?" (STREAM=1: as it comes)
import { connect } from "@nats-io/transport-node";

const { CLASS = "interactive", PROCESS = "node-example", PROVIDER = "", STREAM } = process.env;
const subject = `llm.complete.${CLASS}`;
const request = JSON.stringify({
  messages: [{ role: "user", content: process.argv.slice(2).join(" ") }],
  process: PROCESS,
  provider: PROVIDER,
  stream: Boolean(STREAM),
});

function check(msg) {
  if (msg.headers?.has("Nats-Service-Error-Code")) {
    throw new Error(msg.headers.get("Nats-Service-Error"));
  }
  return msg;
}

const nc = await connect({ servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222" });
try {
  if (STREAM) {
    // The sentinel is the empty payload that ends the stream.
    const replies = await nc.requestMany(subject, request, { strategy: "sentinel", maxWait: 310_000 });
    for await (const msg of replies) {
      if (check(msg).data.length === 0) break;
      const event = msg.json();
      if (event.type === "delta") process.stdout.write(event.content);
    }
    console.log();
  } else {
    const answer = check(await nc.request(subject, request, { timeout: 310_000 })).json();
    console.log(answer.content);
    console.error(`${answer.provider}/${answer.model}, ${answer.usage.totalTokens} tokens`);
  }
} finally {
  await nc.close();
}
