"""Does what it is told, a line of JSON each, with a client that is generated from /openapi.json."""

import json
import os
import sys
import uuid

import spillway

gateway = sys.argv[1]
api = spillway.Client(os.environ["DISPATCHER_SERVER"], os.environ["DISPATCHER_TOKEN"])


def once():
    return str(uuid.uuid4())


def enqueue(jobs, **_):
    lines = api.post_jobs(gateway, "\n".join(json.dumps(job) for job in jobs), on_full="park", kind="application/x-ndjson")
    return [line.get("result") or line["code"] for line in lines]


def listed(**_):
    return [f"{job['id']} {job['reason']}" for job in api.list_dead_letters(gateway=[gateway])["jobs"]]


def replay(ids, by, why, **_):
    body = {"action": "replay", "gateways": [gateway], "ids": ids}
    token = api.preview_dead_letters(body)["token"]
    return api.clear_dead_letters({**body, "token": token, "by": by, "why": why}, idempotency_key=once())["taken"]


def pause(by, why, **_):
    return api.pause_gateway(gateway, {"by": by, "why": why}, idempotency_key=once())["done"]


def resume(by, **_):
    return api.resume_gateway(gateway, {"by": by}, idempotency_key=once())["done"]


def limit(limits, by, **_):
    return api.set_limits(gateway, {"limits": limits, "by": by}, idempotency_key=once())["limits"]


def cancel(batch, by, why, **_):
    done = api.cancel_batch(batch, {"gateways": [gateway], "by": by, "why": why}, idempotency_key=once())
    return [g["jobs"] for g in done["gateways"]]


def outcomes(**_):
    def said(o):
        amount = "null" if o["amount"] is None else o["amount"]
        return f"{o.get('id') or o['batch']} {o['state']} {o['reason'] or '-'} {amount} {o['currency']}"

    return [said(o) for o in api.read_outcomes(gateway, limit=100)]


steps = {"enqueue": enqueue, "list": listed, "replay": replay, "pause": pause, "resume": resume, "limit": limit, "cancel": cancel, "outcomes": outcomes}
for line in sys.stdin:
    step = json.loads(line)
    print(json.dumps(steps[step.pop("do")](**step)), flush=True)
