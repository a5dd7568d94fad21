// Jobs in groups of groupmq: adds them by 500, and writes how many went in a second; or makes the call for each, 64 at once, until SIGTERM.
//   node groupmq.mjs add HOST:PORT QUEUE JOBS GROUPS
//   node groupmq.mjs work HOST:PORT QUEUE URL
import http from "node:http";
import { Queue, Worker } from "groupmq";
import Redis from "ioredis";

const [what, addr, namespace, ...rest] = process.argv.slice(2);
const [host, port] = addr.split(":");
const redis = new Redis({ host, port: Number(port), maxRetriesPerRequest: null });
const chunk = 500;
const queue = new Queue({ redis, namespace, autoBatch: { size: chunk } });

// The payload is that of payload() in bulk.go: as JSON it is the same 200 bytes.
const number = (i) => String(i).padStart(8, "0");
const note = "x".repeat(200 - JSON.stringify({ amount: 1000, currency: "EUR", customer: `cus_${number(0)}`, note: "" }).length);
const payload = (i) => ({ amount: 1000 + (i % 900), currency: "EUR", customer: `cus_${number(i)}`, note });
const job = (i, groups) => ({ groupId: `acct_${10_000_000 + (i % groups)}`, jobId: `inv-${number(i)}`, data: payload(i) });

// groupmq has no call for many jobs: it puts what is added together into one script, one script at a time.
async function add(jobs, groups) {
  await redis.ping();
  const start = performance.now();
  for (let from = 0; from < jobs; from += chunk) {
    await Promise.all(Array.from({ length: Math.min(chunk, jobs - from) }, (_, i) => queue.add(job(from + i, groups))));
  }
  console.log(jobs / ((performance.now() - start) / 1000));
  await redis.quit();
}

const concurrency = 64;
const agent = new http.Agent({ keepAlive: true, maxSockets: concurrency });

const call = (url, body) =>
  new Promise((resolve, reject) => {
    const options = { method: "POST", agent, timeout: 30_000, headers: { "Content-Type": "application/json" } };
    const request = http.request(url, options, (answer) => answer.on("end", resolve).on("error", reject).resume());
    request.on("timeout", () => request.destroy(new Error("no answer within 30 s"))).on("error", reject);
    request.end(body);
  });

function work(url) {
  const worker = new Worker({ queue, concurrency, handler: (job) => call(url, JSON.stringify(job.data)) });
  worker.on("error", (err) => console.error(err));
  process.once("SIGTERM", async () => {
    await worker.close();
    process.exit(0);
  });
  worker.run();
}

await (what === "add" ? add(...rest.map(Number)) : work(rest[0]));
