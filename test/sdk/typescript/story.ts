// Does what it is told, a line of JSON each, with a client that is generated from /openapi.json. Types that do not hold fail the build.
import createClient from "openapi-fetch";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import type { components, paths } from "./api.js";

type Job = components["schemas"]["Job"];
type Taken = components["schemas"]["Taken"];
type Problem = components["schemas"]["Problem"];
type Outcome = components["schemas"]["Outcome"];
type Step = { do: string; jobs: Job[]; ids: string[]; by: string; why: string; limits: string[]; batch: string };

const gateway = process.argv[2];
const api = createClient<paths>({
  baseUrl: process.env.DISPATCHER_SERVER,
  headers: { Authorization: `Bearer ${process.env.DISPATCHER_TOKEN}` },
});
const at = { gateway };

function got<T>(answer: { data?: T; error?: unknown }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

// What may come as lines comes as a document, unless lines are asked for.
function document<T>(answer: T): Exclude<T, string> {
  if (typeof answer === "string") throw new Error("lines came that nobody asked for");
  return answer as Exclude<T, string>;
}

const lines = (text: string) => text.split("\n").filter((line) => line !== "");
const once = () => ({ "Idempotency-Key": randomUUID() });

const steps: Record<string, (s: Step) => Promise<unknown>> = {
  async enqueue({ jobs }) {
    const answer = await api.POST("/v1/gateways/{gateway}/jobs", {
      params: { path: at, query: { on_full: "park" } },
      headers: { "Content-Type": "application/x-ndjson" },
      body: jobs.map((job) => JSON.stringify(job)).join("\n"),
      bodySerializer: (body) => body as string,
      parseAs: "text",
    });
    return lines(got(answer) as unknown as string).map((line) => {
      const said = JSON.parse(line) as Partial<Taken & Problem>;
      return said.result ?? said.code;
    });
  },
  async list() {
    const page = got(await api.GET("/v1/dead-letters", { params: { query: { gateway: [gateway] } } }));
    return page.jobs.map((job) => `${job.id} ${job.reason}`);
  },
  async replay({ ids, by, why }) {
    const body = { action: "replay", gateways: [gateway], ids };
    const preview = got(await api.POST("/v1/dead-letters/preview", { body }));
    const answer = await api.POST("/v1/dead-letters/run", { params: { header: once() }, body: { ...body, token: preview.token, by, why } });
    const done = document(got(answer));
    return done.taken;
  },
  async pause({ by, why }) {
    return got(await api.POST("/v1/gateways/{gateway}/pause", { params: { path: at, header: once() }, body: { by, why } })).done;
  },
  async resume({ by }) {
    return got(await api.POST("/v1/gateways/{gateway}/resume", { params: { path: at, header: once() }, body: { by } })).done;
  },
  async limit({ limits, by }) {
    return got(await api.POST("/v1/gateways/{gateway}/limits/set", { params: { path: at, header: once() }, body: { limits, by } })).limits;
  },
  async cancel({ batch, by, why }) {
    const params = { path: { name: batch }, header: once() };
    const done = document(got(await api.POST("/v1/batches/{name}/cancel", { params, body: { gateways: [gateway], by, why } })));
    return done.gateways.map((g) => g.jobs);
  },
  async outcomes() {
    const answer = await api.GET("/v1/gateways/{gateway}/outcomes", { params: { path: at, query: { limit: 100 } }, parseAs: "text" });
    return lines(got(answer) as unknown as string).map((line) => {
      const o = JSON.parse(line) as Outcome;
      return `${o.id ?? o.batch} ${o.state} ${o.reason ?? "-"} ${o.amount} ${o.currency}`;
    });
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line) as Step;
  console.log(JSON.stringify(await steps[step.do](step)));
}
