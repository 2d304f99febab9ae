# SPDX-License-Identifier: Apache-2.0
#
# read_wandb.py <run folder> EXIT_CODE: reads the file of the monitor wandb with the wandb package, and lets `wandb sync` send
# it to a stand-in for W&B's server on this machine. Both must have what metrics.jsonl, config.json and events.jsonl have.
# EXIT_CODE: that of the run, or none for a run that was killed. Prints the id of the run.
import gzip
import http.server
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

import wandb

wandb._assert_is_internal_process = True  # its reader asks for that
from wandb.proto import wandb_internal_pb2  # noqa: E402
from wandb.sdk.internal.datastore import DataStore  # noqa: E402
from wandb.sdk.lib import proto_util  # noqa: E402


def records_of(path):
    store = DataStore()
    store.open_for_scan(str(path))
    while True:
        try:
            data = store.scan_data()
        except AssertionError:
            assert store.in_last_block(), "damaged before its last block"
            return
        if data is None:
            return
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        yield record


class Server(http.server.BaseHTTPRequestHandler):
    """Answers what `wandb sync` asks, and keeps what it sends."""

    lines, runs, alerts, files = {}, [], [], []

    def log_message(self, *unused):
        pass

    def answer(self, text):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def body(self):
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def do_PUT(self):
        self.body()
        self.files.append(self.path.rsplit("/", 1)[1])
        self.answer(b"")

    def do_POST(self):
        body = json.loads(self.body())
        if self.path.endswith("/file_stream"):
            for name, part in body.get("files", {}).items():
                lines = self.lines.setdefault(name, [])
                lines[part["offset"]:] = part["content"]
            return self.answer(b"{}")
        query, given = body["query"], body.get("variables") or {}
        answer = {"ServerInfoType": {"fields": []}, "QueryType": {"fields": []}, "MutationType": {"fields": []}}
        if "upsertBucket" in query:
            self.runs.append(given)
            entity = {"id": "e", "name": given.get("entity") or "someone"}
            bucket = {"id": "b", "name": given["name"], "displayName": given.get("displayName"), "config": "{}",
                      "project": {"id": "p", "name": given["project"], "entity": entity}}
            answer = {"upsertBucket": {"bucket": bucket, "inserted": True}}
        elif "notifyScriptableRunAlert" in query:
            self.alerts.append(given)
            answer = {"notifyScriptableRunAlert": {"success": True}}
        elif re.search(r"\bviewer\b", query):
            answer = {"viewer": {"id": "v", "entity": "someone", "username": "someone", "flags": "{}",
                                 "teams": {"edges": []}},
                      "serverInfo": {"cliVersionInfo": {"max_cli_version": wandb.__version__}}}
        elif "RunUploadUrls" in query:
            here = "http://127.0.0.1:%d/" % self.server.server_address[1]
            nodes = [{"node": {"name": name, "url": here + name, "updatedAt": None}} for name in given["files"]]
            answer = {"model": {"bucket": {"id": "b", "files": {"uploadHeaders": [], "edges": nodes}}}}
        self.answer(json.dumps({"data": answer}).encode())


def sent(folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "WANDB_BASE_URL": "http://127.0.0.1:%d" % server.server_address[1], "HOME": home,
               "WANDB_API_KEY": "0" * 40, "WANDB_ERROR_REPORTING": "false"}
        command = [sys.executable, "-m", "wandb", "sync", str(folder)]
        done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "done." in done.stdout, done.stdout + done.stderr
    return Server


def same(seen, value):
    return seen == value or (value is None and not math.isfinite(seen))


def check_rows(rows, wanted):
    """`wanted`: a row for each step, from the rows of a step and of its evaluations."""
    assert [row["_step"] for row in rows] == sorted(wanted), ([row["_step"] for row in rows], sorted(wanted))
    runtimes = [row["_runtime"] for row in rows]
    assert runtimes == sorted(runtimes) and runtimes[0] >= 0, runtimes
    for row in rows:
        own = {name: value for name, value in row.items() if not name.startswith("_")}
        assert own.keys() == wanted[row["_step"]].keys(), (own, wanted[row["_step"]])
        for name, value in wanted[row["_step"]].items():
            assert same(own[name], value), (row["_step"], name, own[name], value)


def main():
    run, code = pathlib.Path(sys.argv[1]), sys.argv[2]
    wanted, summary = {}, None
    for line in open(run / "metrics.jsonl"):
        row = json.loads(line)
        if "step" not in row:
            summary = row["summary"]
            continue
        prefix = row.pop("program") + "/" if "program" in row else ""
        step = row.pop("step")
        values = {prefix + name: value for name, value in row.items() if not name.startswith("device_")}
        wanted.setdefault(step, {}).update(values)
    folders = list((run / "wandb").glob("offline-run-*"))
    assert len(folders) == 1, folders
    name = re.fullmatch(r"offline-run-\d{8}_\d{6}-(.+)", folders[0].name).group(1)
    records = list(records_of(folders[0] / f"run-{name}.wandb"))

    kinds = [record.WhichOneof("record_type") for record in records]
    assert kinds[:2] == ["header", "run"] and kinds.count("run") == 1, kinds
    assert [record.num for record in records] == sorted({record.num for record in records})
    told = records[1].run
    assert told.run_id == name and told.display_name == run.name, told
    config = {item.key: json.loads(item.value_json) for item in told.config.update}
    for record in records:
        config.update({item.key: json.loads(item.value_json) for item in record.config.update})
    assert config.pop("run_dir") == str(run)
    assert config == json.load(open(run / "config.json"))
    rows = [proto_util.dict_from_proto_list(record.history.item) for record in records if record.HasField("history")]
    if code == "none":  # the last row waits for values of its step
        wanted = {step: values for step, values in wanted.items() if step <= max(wanted) - 1 or step == rows[-1]["_step"]}
    check_rows(rows, wanted)
    ends = [record.exit.exit_code for record in records if record.HasField("exit")]
    assert ends == ([] if code == "none" else [int(code)]), ends
    assert code == "none" or kinds[-1] == "exit", kinds
    lines = [record.output_raw.line for record in records if record.HasField("output_raw")]
    events = [json.loads(line) for line in open(run / "events.jsonl")] if (run / "events.jsonl").exists() else []
    assert lines == ["step %d: %s: %s\n" % (e["step"], e["event"], e["text"]) for e in events], (lines, events)

    server = sent(folders[0])
    check_rows([json.loads(line) for line in server.lines["wandb-history.jsonl"]], wanted)
    last = json.loads(server.lines["wandb-summary.json"][-1])
    for key, value in wanted[max(wanted)].items():
        assert same(last[key], value), (key, last)
    assert last.get("summary") == summary
    assert server.runs[0]["name"] == name and server.runs[0]["displayName"] == run.name, server.runs[0]
    uploaded = {key: item["value"] for key, item in json.loads(server.runs[-1]["config"]).items() if key != "_wandb"}
    assert uploaded.pop("run_dir") == str(run)
    assert uploaded.keys() == config.keys()
    failures = [event["text"] for event in events if event["event"] == "failed"]
    # A run that goes on after its failure has none: each sync would tell people again.
    assert [alert["text"] for alert in server.alerts] == (failures if code != "0" else []), server.alerts
    if code not in ("none", "0"):
        assert last["failure"] == failures[-1], last
    assert {"config.yaml", "wandb-summary.json"} <= set(server.files), server.files
    print(name)


main()
