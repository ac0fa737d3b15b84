"""Runs schemathesis against a server, once for each role, in one process.

Usage: schemathesis_run.py OPENAPI PLAN

PLAN is a JSON file: {"config": FILE, "seconds": N, "seed": N, "runs": [RUN …]}; `seconds` is for each
run, 0 for a short one. RUN is {"name", "url", "headers", "event", "events", "spare", "known"}. The
first one has a key with the role own: with it, each operation is first called so that it succeeds.

Schemathesis generates requests from the OpenAPI document, valid and invalid ones, and checks each
answer against the document. It does not know what is stored. So the hooks below put events, ids,
tokens and cookies that exist into the valid parts of the requests. Most changes of events are made to
`spare` ones. A token in `known` is [token, type, id, user].

Prints how often each operation was answered with each status. Exits with 1 if an answer is not as
documented, and prints such a request as a curl command.
"""

import json
import random
import sys
from collections import Counter, defaultdict

import schemathesis
from schemathesis.checks import CHECKS
from schemathesis.cli import schemathesis as command
from schemathesis.core.parameters import ParameterLocation

# No 5xx, no undocumented status, content type or member, and invalid requests are refused.
ANSWER_CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]
REQUEST_CHECKS = ["negative_data_rejection", "allow_header_conformance", "unsupported_method"]
EXAMPLES = 2  # requests for each operation, in a short run
SCENARIOS = 6  # sequences of requests, in a short run
USERS = ["ann", "ben", "cara"]
KEPT = 60  # ids of a kind that are remembered

# The phase "coverage" sends each edge of each schema, 2,500 requests: only in a long run. Without
# TRACE, which the server answers with 501, because it supports that method nowhere (RFC 9110).
CONFIG = """
max-stream-events = 2
request-timeout = 60
[generation]
database = "none"
no-shrink = true
[phases.stateful.generation]
max-examples = {scenarios}
[phases.coverage]
enabled = {coverage}
unexpected-methods = ["DELETE", "GET", "PATCH", "POST", "PUT"]
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 409, 410, 412, 415, 422, 429]
"""

pick = random.Random()
run = {}  # the present one
known = defaultdict(list)  # kind: ids of that kind in earlier answers
statuses = defaultdict(Counter)  # operation: status: how often


def often():
    return pick.random() < 0.75


def remember(kind, value):
    if value is not None and value not in known[kind]:
        known[kind].append(value)
        del known[kind][:-KEPT]


def is_valid(case, location):
    """Whether this part of the request is meant to be valid, so that it may be replaced."""
    component = case.meta.components.get(location) if case.meta else None
    return component is None or component.mode.is_positive


def changes_event(label):
    return "/admin/" in label and not label.startswith("GET ")


def some_event(label):
    return pick.choice(run["spare"] if changes_event(label) == often() else run["events"])


def use_path(label, path):
    if "type" in path and "id" in path:
        path["type"], path["id"] = some_event(label)
    elif "id" in path:
        kind = "request" if "/api/v4" in label else "reservation"
        path["id"] = pick.choice(known[kind] or [path["id"]])
    if "section" in path:
        path["section"] = pick.choice("ABCD")


def use_body(label, body):
    if "eventType" in body and "eventId" in body:
        body["eventType"], body["eventId"] = some_event(label)
    if "section" in body:
        body["section"] = pick.choice("ABCD")
    if "quantity" in body:
        body["quantity"] = pick.randint(1, 3)
    if "seats" in body:
        body["seats"] = sorted(pick.sample(range(1, 60), pick.randint(1, 3)))
    if "seatId" in body:
        body["seatId"] = pick.choice(known["seat"] or [body["seatId"]])
    if "userId" in body:
        body["userId"] = pick.choice(USERS)
    for name in ["strategy", "lane", "version"]:
        if name in body and often():
            del body[name]


def some_token(path, body):
    """A token of the request's event, if it has one: [token, type, id, user]."""
    event = [path.get("type", body.get("eventType")), path.get("id", body.get("eventId"))]
    fitting = [one for one in known["token"] if one[1:3] == event]
    return pick.choice(fitting or known["token"])


def use_token(case):
    path = case.path_parameters or {}
    body = case.body if isinstance(case.body, dict) else {}
    token, _, _, user = some_token(path, body)
    if "userId" in body and is_valid(case, ParameterLocation.BODY) and often():
        body["userId"] = user
    if "token" in path:
        path["token"] = token
    elif often():
        case.headers["X-Queue-Token"] = token
    else:
        case.headers.pop("X-Queue-Token", None)
        user = pick.choice(USERS)
    if "userId" in (case.query or {}) and is_valid(case, ParameterLocation.QUERY) and often():
        case.query["userId"] = user


@schemathesis.hook
def before_call(context, case, kwargs):
    if not run["generates"]:
        return
    label = case.operation.label
    if case.path_parameters and is_valid(case, ParameterLocation.PATH) and often():
        use_path(label, case.path_parameters)
    if isinstance(case.body, dict) and is_valid(case, ParameterLocation.BODY) and often():
        use_body(label, case.body)
    if is_valid(case, ParameterLocation.HEADER):
        # Each request is from another client: otherwise wrong keys would make all of them wait.
        case.headers["X-Forwarded-For"] = f"10.{pick.getrandbits(8)}.{pick.getrandbits(8)}.1"
        case.headers.update(run["headers"])
        if is_valid(case, ParameterLocation.PATH) and often():
            use_token(case)
        if "If-Match" in case.headers and often():
            case.headers["If-Match"] = pick.choice(known["etag"] + ["*"])
    if known["cookie"] and is_valid(case, ParameterLocation.COOKIE) and often():
        case.cookies.update([pick.choice(known["cookie"])])


@schemathesis.hook
def after_call(context, case, response):
    statuses[case.operation.label][response.status_code] += 1
    if response.status_code >= 300:
        return
    for cookie in response.headers.get("set-cookie", []):
        remember("cookie", tuple(cookie.split(";")[0].split("=", 1)))
    remember("etag", response.headers.get("etag", [None])[0])
    if response.headers.get("content-type") != ["application/json"]:
        return
    answer = response.json()
    if "entryToken" in answer:
        remember("token", [answer[name] for name in ("entryToken", "eventType", "eventId", "userId")])
    remember("request", answer.get("requestId"))
    if "confirmationCode" in answer:
        remember("reservation", answer["id"])
    if "firstSeatId" in answer:
        for seat in range(8):
            remember("seat", answer["firstSeatId"] + seat)


class Tour:
    """Each operation once, so that it succeeds: its answer is compared with the document, too."""

    def __init__(self, document, one):
        self.schema = schemathesis.openapi.from_path(document)
        self.checks = CHECKS.get_by_names(ANSWER_CHECKS)
        self.url = one["url"]
        self.key = one["headers"]
        self.succeeded = set()

    def ask(
        self, operation_id, event=None, body=None, path=(), query=None, headers=None, form=False
    ):
        operation = self.schema.find_operation_by_id(operation_id)
        path = dict(path)
        if event is not None:
            path["type"], path["id"] = event.split("/")
        headers = self.key if headers is None else headers
        case = operation.Case(path_parameters=path, query=query, headers=headers)
        if body is not None:
            case.body = body
            case.media_type = "application/x-www-form-urlencoded" if form else "application/json"
        response = case.call_and_validate(base_url=self.url, checks=self.checks)
        assert response.status_code < 400, f"{operation_id}: {response.status_code} {response.text}"
        self.succeeded.add(operation_id)
        return response.json() if "/json" in response.headers.get("content-type", [""])[0] else None

    def users(self):
        event = "CONCERT/tour"
        for mode in "ABCD":
            place = self.ask("queue_post_enter", event, {"userId": f"in-{mode}"})
            token = {"X-Queue-Token": place["entryToken"]}
            wish = {"eventType": "CONCERT", "eventId": "tour", "section": mode, "quantity": 1}
            held = self.ask("reservations_post", body=wish, headers=token)
            of_it = {"path": {"id": held["id"]}, "headers": token}
            for operation_id in ["reservation_get_one", "reservation_confirm", "reservation_cancel"]:
                self.ask(operation_id, **of_it)
            self.ask("queue_get_status", event, headers=token)  # COMPLETED
        user = {"eventType": "CONCERT", "eventId": "tour", "userId": "ann"}
        place = self.ask("queue_post_token", body=user)
        token = {"X-Queue-Token": place["entryToken"]}
        path = {"token": place["entryToken"]}
        for operation_id in ["queue_get_status", "queue_get_gate"]:
            self.ask(operation_id, event, headers=token)
        self.ask("queue_get_subscribe", event, path=path, headers={})
        self.ask("queue_get_own_status", headers=token)
        wish["section"] = "D"
        for operation_id in ["optimistic_post", "pessimistic_post", "distributed_lock_post"]:
            self.ask(operation_id, body=wish, headers=token)
        request = self.ask("request_post", body=wish, headers=token)
        for operation_id in ["request_get_subscribe", "request_get_status"]:
            self.ask(operation_id, path={"id": request["requestId"]}, headers=token)
        self.ask("reservations_get_own", headers=token)
        self.ask("queue_delete_leave", event, headers=token)
        waits = self.ask("queue_post_enter", "CONCERT/crowded", {"userId": "waits"})
        assert waits["status"] == "WAITING"
        path = {"token": waits["entryToken"]}
        self.ask("queue_get_subscribe", "CONCERT/crowded", path=path, headers={})

    def visitors(self):
        event = "CONCERT/tour"
        self.ask("events_list", headers={})
        for operation_id in ["rankings_get_soldout", "concerts_get_ranking", "rankings_get_stream"]:
            self.ask(operation_id, headers={})
        self.ask("events_get", event, headers={})
        for form in ["letters", "runs"]:
            self.ask("seats_get", event, path={"section": "A"}, query={"form": form}, headers={})
        self.ask("rankings_get_soldout_one", event, headers={})
        self.ask("rankings_get_popular", path={"period": "daily"}, headers={})
        self.ask("rankings_get_popular_one", event, path={"period": "weekly"}, headers={})
        for operation_id in ["system_health", "system_ready", "system_metrics", "system_openapi"]:
            self.ask(operation_id, headers={})

    def pages(self):
        event = "CONCERT/tour"
        self.ask("page_get_home", headers={})
        self.ask("page_get_event", event, headers={})
        self.ask("page_get_event", event, query={"view": "plain", "rd": "/x"}, headers={})
        self.ask("page_get_admin", headers={})
        for name in ["app.css", "event.js"]:
            self.ask("page_get_asset", path={"name": name}, headers={})
        # As a browser sends it.
        form = {"Origin": self.url}
        self.ask("page_post_event", event, {"action": "enter"}, headers=form, form=True)

    def operators(self):
        event = "CONCERT/tour"
        self.ask("admin_event_get", event)
        self.ask("admin_event_patch", event, {"title": "Tour", "closesAt": "2099-01-01T00:00:00Z"})
        self.ask("admin_section_patch", event, {"status": "closed"}, path={"section": "A"})
        for operation_id in ["admin_queue_get", "admin_queue_get_status", "admin_queue_process"]:
            self.ask(operation_id, event)
        for operation_id in ["admin_queue_patch", "admin_queue_patch_status"]:
            self.ask(operation_id, event, {"maxActive": 9})
        for action in ["pause", "resume", "drain", "deactivate", "activate"]:
            self.ask(f"admin_queue_{action}", event)
        crowd = {"event": event, "users": 50, "arrivalsPerSecond": 1, "thinkSeconds": 0}
        self.ask("admin_simulator_post", body=crowd)
        self.ask("admin_simulator_patch", body={"patienceSeconds": 60})
        for operation_id in ["admin_simulator_get", "admin_simulator_delete"]:
            self.ask(operation_id)
        for operation_id in ["admin_stats", "admin_stats_stream"]:
            self.ask(operation_id)
            self.ask(operation_id, query={"event": event})
        self.ask("admin_key")
        self.ask("admin_audit")
        self.ask("admin_facts")

    def go(self):
        self.ask("admin_event_put", "CONCERT/tour", run["event"])
        self.users()
        self.visitors()
        self.pages()
        self.operators()
        self.ask("admin_event_put", "CONCERT/gone", run["event"])
        self.ask("admin_event_delete", "CONCERT/gone")
        every = {one.ok().definition.raw["operationId"] for one in self.schema.get_all_operations()}
        assert every == self.succeeded, f"left out: {every - self.succeeded}"


def run_one(document, config, seconds, seed):
    known.clear()
    for kind, ids in run["known"].items():
        known[kind] += ids
    pick.seed(seed)
    flags = ["--config-file", config, "run", document, "--url", run["url"]]
    flags += ["--checks", ",".join(ANSWER_CHECKS + REQUEST_CHECKS)]
    flags += ["--seed", str(seed), "--continue-on-failure", "--warnings", "off"]
    flags += ["--max-time", str(seconds)] if seconds else ["--max-examples", str(EXAMPLES)]
    print(f"\n==== {run['name']}, seed {seed}", flush=True)
    try:
        return command.main(flags, standalone_mode=False)
    except SystemExit as end:
        return end.code


def main():
    with open(sys.argv[2], encoding="utf-8") as file:
        plan = json.load(file)
    with open(plan["config"], "w", encoding="utf-8") as file:
        coverage = str(plan["seconds"] > 0).lower()
        file.write(CONFIG.format(coverage=coverage, scenarios=SCENARIOS))
    run.update(plan["runs"][0], generates=False)
    Tour(sys.argv[1], run).go()
    failed = []
    for one in plan["runs"]:
        run.update(one, generates=True)
        if run_one(sys.argv[1], plan["config"], plan["seconds"], plan["seed"]):
            failed.append(run["name"])
    print("\n==== answers")
    for operation, counts in sorted(statuses.items()):
        print(operation, *(f"{status}:{count}" for status, count in sorted(counts.items())))
    if failed:
        print("not as documented:", ", ".join(failed))
    sys.exit(1 if failed else 0)


main()
