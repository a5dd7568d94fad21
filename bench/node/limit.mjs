// Jobs in BullMQ's queue, and a worker that calls a provider with a limit.
//   node limit.mjs add HOST:PORT QUEUE < lines of {"id", "payload"}
//   node limit.mjs work HOST:PORT QUEUE URL CALLS_AT_ONCE MAX DURATION_MS
import { createInterface } from "node:readline";
import { Queue, Worker } from "bullmq";

const [what, addr, name, ...rest] = process.argv.slice(2);
const [host, port] = addr.split(":");
const connection = { host, port: Number(port) };

async function add() {
  const queue = new Queue(name, { connection });
  const jobs = [];
  for await (const line of createInterface({ input: process.stdin })) {
    const { id, payload } = JSON.parse(line);
    // So many attempts that no job fails for the limit's sake.
    jobs.push({ name: "charge", data: payload, opts: { jobId: id, attempts: 1000, backoff: { type: "fixed", delay: 1000 } } });
  }
  await queue.addBulk(jobs);
  await queue.close();
}

async function work() {
  const [url, concurrency, max, duration] = [rest[0], ...rest.slice(1).map(Number)];
  const worker = new Worker(name, (job) => charge(worker, url, job), { connection, concurrency, limiter: { max, duration } });
  worker.on("error", (err) => console.error(err));
  process.on("SIGTERM", async () => {
    await worker.close();
    process.exit(0);
  });
}

// A 429 is answered as BullMQ's guide has it (Rate limiting, Manual rate-limit): all workers wait, and the job goes back at no cost.
async function charge(worker, url, job) {
  const headers = { "Content-Type": "application/json", "Idempotency-Key": job.id };
  const res = await fetch(url, { method: "POST", headers, body: JSON.stringify(job.data) });
  await res.arrayBuffer();
  if (res.status === 429) {
    await worker.rateLimit(1000 * Number(res.headers.get("retry-after")));
    throw Worker.RateLimitError();
  }
  if (!res.ok) throw new Error(`HTTP ${res.status}`);
}

await (what === "add" ? add() : work());
