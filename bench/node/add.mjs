// Adds JOBS jobs to QUEUE by 500, with ATONCE calls of addBulk under way, and writes how many jobs went in a second.
//   node add.mjs HOST:PORT QUEUE JOBS ATONCE
import { Queue } from "bullmq";

const [addr, name, ...numbers] = process.argv.slice(2);
const [jobs, atOnce] = numbers.map(Number);
const [host, port] = addr.split(":");
const chunk = 500;

// The payload is that of payload() in bulk.go: as JSON it is the same 200 bytes.
const number = (i) => String(i).padStart(8, "0");
const note = "x".repeat(200 - JSON.stringify({ amount: 1000, currency: "EUR", customer: `cus_${number(0)}`, note: "" }).length);
const payload = (i) => ({ amount: 1000 + (i % 900), currency: "EUR", customer: `cus_${number(i)}`, note });
const job = (i) => ({ name: "bench", data: payload(i), opts: { jobId: `inv-${number(i)}` } });

const queue = new Queue(name, { connection: { host, port: Number(port) } });
await queue.waitUntilReady();

let next = 0; // the first job that nobody has taken
const add = async () => {
  while (next < jobs) {
    const from = next;
    next = Math.min(from + chunk, jobs);
    await queue.addBulk(Array.from({ length: next - from }, (_, i) => job(from + i)));
  }
};
const start = performance.now();
await Promise.all(Array.from({ length: atOnce }, add));
console.log(jobs / ((performance.now() - start) / 1000));
await queue.close();
