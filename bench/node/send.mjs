// Makes the call for each job of QUEUE, 64 at once, and keeps nothing of it, until SIGTERM: what the handler of bare asynq does.
//   node send.mjs HOST:PORT QUEUE URL
import http from "node:http";
import { Worker } from "bullmq";

const [addr, name, url] = process.argv.slice(2);
const [host, port] = addr.split(":");
const concurrency = 64;
const agent = new http.Agent({ keepAlive: true, maxSockets: concurrency });

const call = (body) =>
  new Promise((resolve, reject) => {
    const options = { method: "POST", agent, timeout: 30_000, headers: { "Content-Type": "application/json" } };
    const request = http.request(url, options, (answer) => answer.on("end", resolve).on("error", reject).resume());
    request.on("timeout", () => request.destroy(new Error("no answer within 30 s"))).on("error", reject);
    request.end(body);
  });

const worker = new Worker(name, (job) => call(JSON.stringify(job.data)), {
  connection: { host, port: Number(port) },
  concurrency,
  removeOnComplete: { count: 0 },
});
worker.on("error", (err) => console.error(err));
process.once("SIGTERM", async () => {
  await worker.close();
  process.exit(0);
});
