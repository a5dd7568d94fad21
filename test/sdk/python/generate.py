"""Writes a Python client from an OpenAPI document: a method for each operation, with what it takes by name, and nothing beyond Python itself.

    python3 generate.py openapi.json >spillway.py
"""

import json
import re
import sys

HEAD = '''"""Made from /openapi.json by generate.py."""

import json
import urllib.error
import urllib.parse
import urllib.request


class Problem(Exception):
    """An answer that says no."""

    def __init__(self, problem):
        super().__init__(problem.get("detail"))
        self.code = problem.get("code")
        self.problem = problem


class Client:
    def __init__(self, url, token=""):
        self._url, self._token = url.rstrip("/"), token

    def _ask(self, method, path, query, headers, body, kind, required):
        given = [(name, text(one)) for name, value in query.items() if value is not None for one in (value if isinstance(value, list) else [value])]
        sent = {"Authorization": "Bearer " + self._token, **{name: value for name, value in headers.items() if value is not None}}
        if body is not None:
            sent["Content-Type"] = kind
            body = (body if isinstance(body, str) else json.dumps(body)).encode()
        request = urllib.request.Request(self._url + path + ("?" + urllib.parse.urlencode(given) if given else ""), body, sent, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                media, said = answer.headers.get_content_type(), answer.read().decode()
        except urllib.error.HTTPError as refused:
            raise Problem(json.loads(refused.read())) from None
        if media == "application/x-ndjson":
            return [json.loads(line) for line in said.splitlines() if line]
        if media != "application/json":
            return said
        said = json.loads(said)
        missing = [name for name in required if name not in said]
        if missing:
            raise ValueError(f"the answer of {path} lacks {missing}, which the document promises")
        return said


def text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)
'''


def resolved(document, part):
    while "$ref" in part:
        at = document
        for name in part["$ref"].removeprefix("#/").split("/"):
            at = at[name]
        part = at
    return part


def snake(name):
    return re.sub(r"\W", "_", re.sub(r"([a-z])([A-Z])", r"\1_\2", name)).lower()


def method(document, path, verb, operation):
    parameters = [resolved(document, p) for p in operation.get("parameters", [])]
    in_path = [p for p in parameters if p["in"] == "path"]
    others = [p for p in parameters if p["in"] != "path"]
    body = resolved(document, operation["requestBody"]) if "requestBody" in operation else None
    answer = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})
    required = resolved(document, answer).get("required", [])
    signature = ["self"] + [snake(p["name"]) for p in in_path] + (["body"] if body else [])
    options = [snake(p["name"]) + "=None" for p in others] + (['kind="application/json"'] if body else [])
    if options:
        signature += ["*"] + options
    at = re.sub(r"\{(\w+)\}", lambda m: "{urllib.parse.quote(str(" + snake(m[1]) + '), safe="")}', path)
    pairs = {place: ", ".join(f'"{p["name"]}": {snake(p["name"])}' for p in others if p["in"] == place) for place in ("query", "header")}
    return (
        f"\n    def {snake(operation['operationId'])}({', '.join(signature)}):\n"
        f"        {json.dumps(operation['summary'])}\n"
        f"        return self._ask({verb.upper()!r}, f'{at}', {{{pairs['query']}}}, {{{pairs['header']}}}, "
        f"{'body' if body else None}, {'kind' if body else None}, {required!r})\n"
    )


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    methods = [method(document, path, verb, operation) for path, item in document["paths"].items() for verb, operation in item.items()]
    head, end = HEAD.split("\n\ndef text")
    print(head + "\n" + "".join(methods) + "\n\ndef text" + end, end="")


main()
