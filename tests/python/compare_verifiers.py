"""Verify many bundles and proofs with docs/verify.py in one process.

    compare_verifiers.py FILE

Each line of FILE is a JSON object with the arguments of one verification, named as on the command line:
{"dir": PATH or "proof": PATH, "vkey": [KEY, ..], "policy": PATH, "checkpoint": [PATH, ..]}. Other members are ignored.
Each line of the output is the JSON verdict of that line, as `verify.py --json` prints it, or
{"verdict": "error", "message": ..} where verify.py would have ended with exit code 2. Findings are in the order
of verify.py.
"""

import functools
import json
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs"))

import verify  # noqa: E402

# A pure function. Most mutated bundles have the signatures of the bundle that they were made of.
verify.verify_ed25519 = functools.lru_cache(maxsize=4096)(verify.verify_ed25519)


def verdict(arguments: dict) -> dict:
    try:
        trust = verify.make_trust(arguments.get("vkey") or [], arguments.get("policy"))
        if arguments.get("proof") is not None:
            return verify.verify_proof(arguments["proof"], trust).as_json()
        return verify.verify_bundle(arguments["dir"], trust, arguments.get("checkpoint") or []).as_json()
    except verify.VerificationError as error:
        return {"verdict": "error", "message": str(error)}


def main(path: str) -> None:
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                print(json.dumps(verdict(json.loads(line))))


if __name__ == "__main__":
    main(sys.argv[1])
