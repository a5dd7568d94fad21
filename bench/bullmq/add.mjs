// Adds JOBS jobs to QUEUE by 500, and writes how many went in a second, from the first call to the last answer.
//   node add.mjs HOST:PORT QUEUE JOBS
import { Queue } from "bullmq";

const [addr, name, jobs] = process.argv.slice(2);
const [host, port] = addr.split(":");
const chunk = 500;

// The payload is that of payload() in bulk.go: as JSON it is the same 200 bytes.
const number = (i) => String(i).padStart(8, "0");
const note = "x".repeat(200 - JSON.stringify({ amount: 1000, currency: "EUR", customer: `cus_${number(0)}`, note: "" }).length);
const payload = (i) => ({ amount: 1000 + (i % 900), currency: "EUR", customer: `cus_${number(i)}`, note });

const queue = new Queue(name, { connection: { host, port: Number(port) } });
await queue.waitUntilReady();
const start = performance.now();
for (let from = 0; from < Number(jobs); from += chunk) {
  const some = [];
  for (let i = from; i < Math.min(from + chunk, Number(jobs)); i++) {
    some.push({ name: "bench", data: payload(i), opts: { jobId: `inv-${number(i)}` } });
  }
  await queue.addBulk(some);
}
console.log(Number(jobs) / ((performance.now() - start) / 1000));
await queue.close();
