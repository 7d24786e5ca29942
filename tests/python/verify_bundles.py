"""Verifies many bundles with docs/verify.py in one process: a JSON object a line with `dir` and `vkey` on standard input,
a verdict a line on standard output."""

import importlib.util
import json
import sys

spec = importlib.util.spec_from_file_location("verify", sys.argv[1])
verify = importlib.util.module_from_spec(spec)
spec.loader.exec_module(verify)

for line in sys.stdin:
    bundle = json.loads(line)
    try:
        trust = verify.read_trust([bundle["vkey"]], None)
        verdict = verify.verify_bundle(bundle["dir"], trust).as_json()
    except verify.CannotVerify:
        verdict = None
    print(json.dumps(verdict), flush=True)
