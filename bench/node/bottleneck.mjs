// Jobs in a list of Redis, and a process that takes its part of them into its memory, as Bottleneck has them, and calls a provider
// through a limiter that all processes share.
//   node bottleneck.mjs add HOST:PORT LIST < lines of {"id", "payload"}
//   node bottleneck.mjs work HOST:PORT LIST URL JOBS LIMITS
import { createInterface } from "node:readline";
import Bottleneck from "bottleneck";
import Redis from "ioredis";

const [what, addr, name, ...rest] = process.argv.slice(2);
const [host, port] = addr.split(":");
const redis = new Redis({ host, port: Number(port) });

async function add() {
  const jobs = [];
  for await (const line of createInterface({ input: process.stdin })) jobs.push(line);
  await redis.rpush(name, ...jobs);
  await redis.quit();
}

async function work() {
  const [url, part, limits] = [rest[0], Number(rest[1]), JSON.parse(rest[2])];
  const limiter = new Bottleneck({ id: name, datastore: "ioredis", Redis, clientOptions: { host, port: Number(port) }, ...limits });
  limiter.on("error", (err) => console.error(err));
  process.on("SIGTERM", () => process.exit(0));
  await limiter.ready();
  for (const line of (await redis.lpop(name, part)) ?? []) bring(limiter, url, JSON.parse(line), 5);
}

// Bottleneck's own retry (its event "failed") passes no limiter. So what was answered 429 is scheduled once more when the provider says, ahead of the others.
async function bring(limiter, url, job, priority) {
  const wait = await limiter.schedule({ priority, expiration: 30_000 }, () => charge(url, job));
  if (wait !== undefined) setTimeout(() => bring(limiter, url, job, 0), 1000 * wait);
}

async function charge(url, { id, payload }) {
  const headers = { "Content-Type": "application/json", "Idempotency-Key": id };
  const res = await fetch(url, { method: "POST", headers, body: JSON.stringify(payload) });
  await res.arrayBuffer();
  if (res.status === 429) return Number(res.headers.get("retry-after"));
  if (!res.ok) throw new Error(`HTTP ${res.status}`);
}

await (what === "add" ? add() : work());
