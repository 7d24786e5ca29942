#!/usr/bin/env python3
"""Verify a bundle, or the proof of one entry, of countersign's transparency log.

    verify.py DIR (--vkey KEY)... [--policy FILE] [--checkpoint FILE]... [--json]
    verify.py --proof FILE (--vkey KEY)... [--policy FILE] [--json]

It needs Python 3.9 or newer and nothing else. It has no code in common with countersign. It is
written from docs/reference/log-format.md, from the specifications of c2sp.org (signed-note,
tlog-checkpoint, tlog-cosignature, tlog-tiles, tlog-proof, tlog-policy), and from RFC 6962 and
RFC 8032.

Exit codes: 0 valid, 1 invalid (there are findings), 2 the verification could not run.

The parts of this file, from the bottom of the format to the top:

    1. Ed25519          4. policies         7. the tree
    2. hashes           5. signatures       8. bundles
    3. notes and keys   6. entries          9. proofs, and the command line
"""

from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import json
import os
import re
import stat
import struct
import sys
from datetime import datetime, timedelta, timezone

MAX_CHECKPOINT_BYTES = 65_536
MAX_PROOF_BYTES = 262_144  # an entry of 65,535 bytes in base64, 64 hashes and a checkpoint fit
MAX_POLICY_BYTES = 1_048_576
MAX_ENTRY_BYTES = 8_192
MAX_FRAMED_ENTRY_BYTES = 65_535
MAX_SIZE = 2**63 - 1
MAX_TIMESTAMP = 2**63 - 1
TILE_WIDTH = 256
TILE_LEVELS = 8  # a tree of at most 2^63 - 1 leaves has no tile of a higher level
# A checkpoint may claim any size. Of the files that are missing then, no more than these are listed.
MAX_FINDINGS_OF_A_CODE = 1_000
# Folders in a bundle are never deeper: "tile", a level, six elements of an index, and "<N>.p".
MAX_FOLDER_DEPTH = 10


class VerificationError(Exception):
    """The verification could not run: exit code 2."""


class MalformedError(Exception):
    """Bytes are not in the format that was expected."""


# ---------------------------------------------------------------------------------------------
# 1. Ed25519, RFC 8032
#
# The checks of `verify_ed25519`:
#   - the signature has 64 bytes, the public key 32;
#   - S is less than the order L of the base point (RFC 8032, 5.1.7, step 1);
#   - the public key is the canonical encoding of a point (RFC 8032, 5.1.3): y is less than p, and
#     the sign bit is not set where x is 0;
#   - the encoding of [S]B - [k]A is R, byte for byte: the equation without cofactor, so an R that
#     is no canonical encoding never verifies.
# These are the checks of ring, which does the comparison in the same way. Only the canonical public
# key is stricter here. Keys of small order are not refused, neither here nor there: the keys are
# the verifier's own choice.
# ---------------------------------------------------------------------------------------------

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
SQRT_MINUS_ONE = pow(2, (P - 1) // 4, P)
IDENTITY = (0, 1, 1, 0)  # points have extended coordinates: x = X/Z, y = Y/Z, x*y = T/Z


def add_points(p, q):
    a = (p[1] - p[0]) * (q[1] - q[0]) % P
    b = (p[1] + p[0]) * (q[1] + q[0]) % P
    c = 2 * p[3] * q[3] * D % P
    d = 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def double_point(p):
    a = p[0] * p[0] % P
    b = p[1] * p[1] % P
    h = a + b
    e = h - (p[0] + p[1]) * (p[0] + p[1]) % P
    g = a - b
    f = 2 * p[2] * p[2] + g
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def decode_point(encoded: bytes):
    """The point of 32 bytes, or None if they are not the canonical encoding of one."""
    y = int.from_bytes(encoded, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if y >= P:
        return None
    u, v = (y * y - 1) % P, (D * y * y + 1) % P
    x = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    if v * x * x % P == P - u and u:
        x = x * SQRT_MINUS_ONE % P
    if v * x * x % P != u or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return (x, y, 1, x * y % P)


def encode_point(p) -> bytes:
    inverse = pow(p[2], P - 2, P)
    x, y = p[0] * inverse % P, p[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


BASE = decode_point(bytes([0x58]) + bytes([0x66]) * 31)


def verify_ed25519(public_key: bytes, message: bytes, signature: bytes) -> bool:
    point = decode_point(public_key) if len(public_key) == 32 else None
    if point is None or len(signature) != 64:
        return False
    s = int.from_bytes(signature[32:], "little")
    if s >= L:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public_key + message).digest(), "little") % L
    minus_a = (P - point[0], point[1], 1, P - point[3])
    both = add_points(BASE, minus_a)
    result = IDENTITY
    for bit in range(252, -1, -1):  # [s]B + [k](-A), with one run of doublings for both
        result = double_point(result)
        of_s, of_k = s >> bit & 1, k >> bit & 1
        if of_s or of_k:
            result = add_points(result, both if of_s and of_k else BASE if of_s else minus_a)
    return encode_point(result) == signature[:32]


# ---------------------------------------------------------------------------------------------
# 2. Hashes, RFC 6962, section 2.1
# ---------------------------------------------------------------------------------------------

EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    return hashlib.sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def push_subtree(stack: list, leaves: int, root: bytes) -> None:
    """Append a perfect subtree to a tree. The stack has the perfect subtrees of the tree from the
    largest to the smallest, as (number of leaves, root)."""
    while stack and stack[-1][0] == leaves:
        root = node_hash(stack.pop()[1], root)
        leaves *= 2
    stack.append((leaves, root))


def root_of_stack(stack: list) -> bytes:
    if not stack:
        return EMPTY_ROOT
    root = stack[-1][1]
    for _, left in reversed(stack[:-1]):
        root = node_hash(left, root)
    return root


def root_of_hashes(hashes: list) -> bytes:
    """The Merkle tree hash of leaf hashes."""
    stack = []
    for leaf in hashes:
        push_subtree(stack, 1, leaf)
    return root_of_stack(stack)


def root_from_inclusion_proof(index: int, size: int, leaf: bytes, proof: list):
    """The root that an inclusion proof leads to, or None if its length is wrong (the algorithm of
    RFC 9162, section 2.1.3.2)."""
    if index >= size:
        return None
    node, last, root = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return None
        if node & 1 or node == last:
            root = node_hash(sibling, root)
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            root = node_hash(root, sibling)
        node, last = node >> 1, last >> 1
    return root if last == 0 else None


# ---------------------------------------------------------------------------------------------
# 3. Notes, checkpoints and verifier keys
# ---------------------------------------------------------------------------------------------

LOG_KEY = 0x01  # Ed25519, signed-note
WITNESS_KEY = 0x04  # Ed25519 with a time, tlog-cosignature
# The characters with the property White_Space of Unicode, and "+": none is allowed in key names.
NOT_IN_KEY_NAMES = re.compile("[+\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
DECIMAL = re.compile("0|[1-9][0-9]{0,19}")


def decode_base64(text: str) -> bytes:
    """Strict base64, RFC 4648, section 4: with padding, and with unused bits that are zero."""
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError):
        raise MalformedError("not base64") from None
    if base64.b64encode(data).decode("ascii") != text:
        raise MalformedError("not canonical base64")
    return data


def decode_hash(text: str) -> bytes:
    data = decode_base64(text)
    if len(data) != 32:
        raise MalformedError("not a hash of 32 bytes")
    return data


def decode_decimal(text: str) -> int:
    if not DECIMAL.fullmatch(text) or int(text) > MAX_SIZE:
        raise MalformedError("not a decimal number of 64 bits without leading zeroes")
    return int(text)


def is_key_name(name: str) -> bool:
    return bool(name) and not NOT_IN_KEY_NAMES.search(name)


class Note:
    """A signed note: `text` (bytes, with its last LF), and `signatures`, a list of (key name, key id
    of 4 bytes, signature)."""

    def __init__(self, text: bytes, signatures: list):
        self.text = text
        self.signatures = signatures


def open_note(data: bytes) -> Note:
    """Read a signed note. No signature is verified here. Raises MalformedError."""
    try:
        note = data.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedError("not UTF-8") from None
    if re.search("[\x00-\x09\x0b-\x1f]", note):
        raise MalformedError("a control character")
    text, separator, signed = note.rpartition("\n\n")
    if not separator or not signed.endswith("\n"):
        raise MalformedError("no signatures behind an empty line")
    lines = signed[:-1].split("\n")
    return Note((text + "\n").encode("utf-8"), [read_signature_line(line) for line in lines])


def read_signature_line(line: str) -> tuple:
    pieces = line.split(" ")
    if len(pieces) != 3 or pieces[0] != "\u2014" or not is_key_name(pieces[1]):
        raise MalformedError("not a signature line")
    data = decode_base64(pieces[2])
    if len(data) < 5:
        raise MalformedError("a signature that is too short")
    return pieces[1], data[:4], data[4:]


class Checkpoint:
    """A checkpoint: `note`, `origin`, `size`, and `root` of 32 bytes."""

    def __init__(self, note: Note, origin: str, size: int, root: bytes):
        self.note = note
        self.origin = origin
        self.size = size
        self.root = root


def read_checkpoint(data: bytes) -> Checkpoint:
    """Read a signed checkpoint without extension lines. Raises MalformedError."""
    if len(data) > MAX_CHECKPOINT_BYTES:
        raise MalformedError("too long")
    note = open_note(data)
    lines = note.text.decode("utf-8").split("\n")
    if len(lines) != 4 or not lines[0]:  # the fourth is empty, behind the last LF
        raise MalformedError("not an origin, a size and a root")
    return Checkpoint(note, lines[0], decode_decimal(lines[1]), decode_hash(lines[2]))


class Key:
    """A verifier key: `name`, `id` (4 bytes), `kind` (LOG_KEY or WITNESS_KEY), `public` (32 bytes)."""

    def __init__(self, name: str, id_: bytes, kind: int, public: bytes):
        self.name = name
        self.id = id_
        self.kind = kind
        self.public = public


def key_id(name: str, kind: int, public: bytes) -> bytes:
    return hashlib.sha256(name.encode("utf-8") + b"\n" + bytes([kind]) + public).digest()[:4]


def read_vkey(text: str, kind: int) -> Key:
    """Read a verifier key that has to be of the given kind. Raises MalformedError."""
    pieces = text.split("+", 2)
    if len(pieces) != 3 or not is_key_name(pieces[0]) or not re.fullmatch("[0-9a-f]{8}", pieces[1]):
        raise MalformedError("not <name>+<8 hexadecimal digits>+<base64>")
    try:
        pieces[0].encode("utf-8")
    except UnicodeEncodeError:
        raise MalformedError("the name is not UTF-8") from None
    material = decode_base64(pieces[2])
    if len(material) != 33 or material[0] != kind:
        raise MalformedError(f"not an Ed25519 key of type {kind:#04x}")
    public = material[1:]
    if bytes.fromhex(pieces[1]) != key_id(pieces[0], kind, public):
        raise MalformedError("the key id is not the one of this name and key")
    if decode_point(public) is None:
        raise MalformedError("the public key is not a point of Ed25519")
    return Key(pieces[0], key_id(pieces[0], kind, public), kind, public)


# ---------------------------------------------------------------------------------------------
# 4. Policies, tlog-policy
# ---------------------------------------------------------------------------------------------


class Policy:
    """A trust policy: `logs` (keys), `witnesses` (key by name), `groups` (name to (threshold,
    members), in the order of the file), and `quorum` (a name, or b"none"). Names are bytes."""

    def __init__(self):
        self.logs = []
        self.witnesses = {}
        self.groups = {}
        self.quorum = None
        self.members = set()

    def is_met(self, cosigners: set) -> bool:
        """Whether these witnesses, a set of names, are enough."""
        if self.quorum == b"none":
            return True
        met = set(cosigners)
        for name, (threshold, members) in self.groups.items():
            if sum(member in met for member in members) >= threshold:
                met.add(name)
        return self.quorum in met

    def defines(self, name: bytes) -> bool:
        return name in self.witnesses or name in self.groups


def read_policy(data: bytes) -> Policy:
    """Read a policy. Raises MalformedError with the number of the line."""
    if re.search(b"[^\t\n\x20-\x7e\x80-\xff]", data):
        raise MalformedError("a control character other than tab and newline")
    if data and not data.endswith(b"\n"):
        raise MalformedError("the last line has no newline")
    policy = Policy()
    readers = {b"log": read_log, b"witness": read_witness, b"group": read_group, b"quorum": read_quorum}
    for number, line in enumerate(data.split(b"\n"), 1):
        items = [item for item in re.split(b"[ \t]+", line) if item]
        if not items or items[0].startswith(b"#"):
            continue
        try:
            if items[0] not in readers:
                raise MalformedError("not a log, witness, group or quorum")
            readers[items[0]](policy, items[1:])
        except MalformedError as error:
            raise MalformedError(f"line {number}: {error}") from None
    if policy.quorum is None:
        raise MalformedError("no quorum line")
    return policy


def read_policy_key(item: bytes, kind: int, others) -> Key:
    try:
        key = read_vkey(item.decode("utf-8"), kind)
    except UnicodeDecodeError:
        raise MalformedError("the key is not UTF-8") from None
    if any(key.public == other.public for other in others):
        raise MalformedError("the key occurs twice")
    return key


def read_log(policy: Policy, items: list) -> None:
    if len(items) not in (1, 2):
        raise MalformedError("not log <vkey> [<url>]")
    policy.logs.append(read_policy_key(items[0], LOG_KEY, policy.logs))


def read_witness(policy: Policy, items: list) -> None:
    if len(items) not in (2, 3):
        raise MalformedError("not witness <name> <vkey> [<url>]")
    check_new_name(policy, items[0])
    policy.witnesses[items[0]] = read_policy_key(items[1], WITNESS_KEY, policy.witnesses.values())


def read_group(policy: Policy, items: list) -> None:
    if len(items) < 3:
        raise MalformedError("not group <name> all|any|<k> <name>...")
    name, threshold, members = items[0], items[1], items[2:]
    check_new_name(policy, name)
    for member in members:
        if not policy.defines(member):
            raise MalformedError("a member that no line before defines")
        if member in policy.members:
            raise MalformedError("a member of two groups, or twice of one")
        policy.members.add(member)
    if threshold in (b"all", b"any"):
        k = len(members) if threshold == b"all" else 1
    elif re.fullmatch(b"0*[0-9]{1,9}", threshold):
        k = int(threshold.lstrip(b"0") or b"0")
    else:
        raise MalformedError("a threshold that is not all, any or a number")
    if not 1 <= k <= len(members):
        raise MalformedError("a threshold that is not between 1 and the number of members")
    policy.groups[name] = (k, members)


def read_quorum(policy: Policy, items: list) -> None:
    if len(items) != 1:
        raise MalformedError("not quorum <name>")
    if policy.quorum is not None:
        raise MalformedError("a second quorum")
    if items[0] != b"none" and not policy.defines(items[0]):
        raise MalformedError("a quorum that no line before defines")
    policy.quorum = items[0]


def check_new_name(policy: Policy, name: bytes) -> None:
    if name == b"none" or policy.defines(name):
        raise MalformedError("a name that is defined already")


# ---------------------------------------------------------------------------------------------
# 5. Signatures
# ---------------------------------------------------------------------------------------------


class Trust:
    """What the verifier trusts: keys of logs, a policy, or both (then both have to hold)."""

    def __init__(self, keys: list, policy: Policy | None):
        self.keys = keys
        self.policy = policy
        self.known = {}
        policy_keys = policy.logs + list(policy.witnesses.values()) if policy else []
        for key in keys + policy_keys:
            other = self.known.setdefault((key.name, key.id), key)
            if other.public != key.public:
                raise VerificationError(f"two different keys have the name and the id of {visible(key.name)}")


def make_trust(vkeys: list, policy_path=None) -> Trust:
    """The trust of command line arguments. Raises VerificationError."""
    if not vkeys and policy_path is None:
        raise VerificationError(
            "give the log's key (--vkey KEY) or a policy (--policy FILE), as you got it from the "
            "operator of the log by a way that you trust. The key inside of a bundle proves nothing: "
            "whoever makes up a bundle can put in a key of their own."
        )
    keys = []
    for vkey in vkeys:
        try:
            keys.append(read_vkey(vkey, LOG_KEY))
        except MalformedError as error:
            raise VerificationError(f"--vkey {visible(vkey)}: {error}") from None
    policy = None
    if policy_path is not None:
        data = read_argument_file(policy_path, MAX_POLICY_BYTES)
        try:
            if len(data) > MAX_POLICY_BYTES:
                raise MalformedError("too long")
            policy = read_policy(data)
        except MalformedError as error:
            raise VerificationError(f"--policy {visible_path(policy_path)}: {error}") from None
    return Trust(keys, policy)


def has_signed(key: Key, text: bytes, signature: bytes) -> bool:
    if key.kind == LOG_KEY:
        return verify_ed25519(key.public, text, signature)
    if len(signature) != 72:
        return False
    time = struct.unpack(">Q", signature[:8])[0]
    message = b"cosignature/v1\ntime %d\n" % time + text
    return time <= MAX_TIMESTAMP and verify_ed25519(key.public, message, signature[8:])


def verify_signatures(checkpoint: Checkpoint, trust: Trust) -> tuple:
    """Step 2. Return the codes of the findings, and the cosignatures as (name, POSIX time)."""
    codes, seen, signers, cosignatures, is_valid = [], set(), set(), [], True
    for name, id_, signature in checkpoint.note.signatures:
        key = trust.known.get((name, id_))
        if key is None:
            continue
        verified = has_signed(key, checkpoint.note.text, signature)
        is_valid = is_valid and verified and (name, id_) not in seen
        seen.add((name, id_))
        if verified:
            signers.add((name, id_))
            if key.kind == WITNESS_KEY:
                cosignatures.append((name, struct.unpack(">Q", signature[:8])[0]))

    if not is_valid:
        return ["signature_invalid"], []

    def signed_by_one_of(keys: list) -> bool:
        return any(key.name == checkpoint.origin and (key.name, key.id) in signers for key in keys)

    policy = trust.policy
    # A policy may leave out the logs if they are known otherwise.
    of_policy = policy.logs if policy and (policy.logs or not trust.keys) else None
    if any(keys is not None and not signed_by_one_of(keys) for keys in (trust.keys or None, of_policy)):
        return ["checkpoint_unsigned"], []
    if policy:
        cosigners = {name for name, key in policy.witnesses.items() if (key.name, key.id) in signers}
        if not policy.is_met(cosigners):
            codes.append("policy_not_met")
    return codes, cosignatures


# ---------------------------------------------------------------------------------------------
# 6. Entries
# ---------------------------------------------------------------------------------------------

PLAIN = "[^%\x00-\x1f\x7f-\x9f]*"
ENCODED = "%(?:25|[01][0-9A-F]|7F|C2%[89][0-9A-F])"
ENTRY = re.compile(f"countersign-entry/v1\n(?:[a-z][a-z0-9_]* (?!\n){PLAIN}(?:{ENCODED}{PLAIN})*\n)+")
TIME = re.compile(
    "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    "T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\\.[0-9]{6}Z"
)
PART = re.compile("sha256:([0-9a-f]{64})")
PART_KEYS = frozenset(["params", "result", "effects", "context", "details"])
TIME_KEYS = frozenset(["at", "admitted_at", "completed_at", "decided_at", "made_before"])
KEYS = {
    "record": "id correlation_id status tool account actor login admitted_at completed_at rows_affected "
    "error_code duplicate_of undo_of proposal_id decided_by decided_login decided_via decided_at params "
    "result effects context",
    "decision": "id at login person proposal_id digest decision via tier tool account details",
    "question": "id at login person proposal_id digest via tool account details",
    "schema_change": "id at login person change_id digest action account steps details",
    "freeze": "id at login person subject name details",
    "unfreeze": "id at login person subject name details",
    "erase": "id at login person record event correlation_id erased proposal_id asked_by asked_login "
    "params result effects context details",
    "prune": "id at login person records made_before details",
    "key": "id at login person action vkey",
    "login": "id at login person role method",
    "fork": "id at login previous_origin previous_size previous_root",
    "loss": "id at login records since entries signed_entries details",
    "export": "id at login person size parts",
    "upgrade": "id at login version",
}
KEY_RANKS = {kind: {key: rank for rank, key in enumerate(keys.split())} for kind, keys in KEYS.items()}


def read_entry(entry: bytes) -> list:
    """Verify the form of an entry. Return the digests of its parts. Raises MalformedError."""
    try:
        text = entry.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedError("not UTF-8") from None
    if not ENTRY.fullmatch(text):
        raise MalformedError("not lines of a key and an encoded value")
    fields = [line.split(" ", 1) for line in text.split("\n")[1:-1]]
    values = dict(fields)
    if fields[0][0] != "kind" or len(values) != len(fields):
        raise MalformedError("the first key is not kind, or a key occurs twice")
    ranks = KEY_RANKS.get(values["kind"], {})  # an unknown kind has keys in any order
    parts, last = [], -1
    for key, value in fields:
        rank = ranks.get(key)  # an unknown key may be anywhere
        if rank is not None:
            if rank < last:
                raise MalformedError("keys in another order")
            last = rank
            if key in TIME_KEYS and not TIME.fullmatch(value):
                raise MalformedError("not a time in UTC with microseconds")
        if key in PART_KEYS:
            digest = PART.fullmatch(value)
            if not digest:
                raise MalformedError("not the digest of a part")
            parts.append(bytes.fromhex(digest[1]))
    return parts


def verify_entry(entry: bytes) -> tuple:
    """Step 5. Return the codes of the findings, and the digests of the parts."""
    codes, parts = [], []
    if len(entry) > MAX_ENTRY_BYTES:
        codes.append("entry_too_long")
    try:
        parts = read_entry(entry)
    except MalformedError:
        codes.append("entry_malformed")
    return codes, parts


def split_entries(data: bytes, count: int) -> list:
    """The entries of a file that has to have exactly `count` ones. Raises MalformedError."""
    entries, at = [], 0
    for _ in range(count):
        start = at + 2
        at = start + int.from_bytes(data[at:start], "big")
        entries.append(data[start:at])
    if at != len(data):  # it is behind the end of the data if an entry is missing or cut
        raise MalformedError("not exactly as many entries, or bytes behind the last one")
    return entries


# ---------------------------------------------------------------------------------------------
# 7. The tree
# ---------------------------------------------------------------------------------------------

TILE_PATH = re.compile(rb"tile/(entries|[0-7])/((?:x[0-9]{3}/)*)([0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?")
ENTRIES = -1  # stands for the "level" of the files of entries


def tile_path(level: int, index: int, width: int) -> bytes:
    elements = [b"%03d" % (index % 1000)]
    while index >= 1000:
        index //= 1000
        elements.insert(0, b"x%03d" % (index % 1000))
    name = b"entries" if level == ENTRIES else b"%d" % level
    return b"tile/%s/%s" % (name, b"/".join(elements)) + (b"" if width == TILE_WIDTH else b".p/%d" % width)


def tile_width(size: int, level: int, index: int) -> int:
    """The number of hashes (or entries) in a tile of a tree of that size. 0: there is no such tile."""
    hashes = size >> 8 * max(level, 0)
    return max(0, min(TILE_WIDTH, hashes - index * TILE_WIDTH))


def tile_of_path(path: bytes, size: int):
    """(level, index) of a tile that belongs to a tree of that size, or None."""
    match = TILE_PATH.fullmatch(path)
    if not match or len(match[2]) > 5 * 6:
        return None
    level = ENTRIES if match[1] == b"entries" else int(match[1])
    index = int(match[2].replace(b"x", b"").replace(b"/", b"") + match[3])
    width = tile_width(size, level, index)
    return (level, index) if width and tile_path(level, index, width) == path else None


def required_tiles(size: int):
    """Each (level, index) of the files that a tree of that size requires."""
    for level in [*range(TILE_LEVELS), ENTRIES]:
        index = 0
        while tile_width(size, level, index):
            yield level, index
            index += 1


class Tree:
    """The root of a tree whose leaf hashes arrive tile by tile, and its roots at earlier sizes."""

    def __init__(self, sizes):
        self.sizes = sizes
        self.size = 0
        self.stack = []
        self.roots = {0: EMPTY_ROOT}

    def add_tile(self, index: int, hashes: list, root: bytes) -> None:
        """Add the tile of this index. Nothing behind a tile that is missing is added."""
        start = index * TILE_WIDTH
        if start != self.size:
            return
        end = start + len(hashes)
        for size in self.sizes:
            if start < size < end:
                self.roots[size] = self.root_with(hashes[: size - start])
        if len(hashes) == TILE_WIDTH:
            push_subtree(self.stack, TILE_WIDTH, root)
        else:
            for leaf in hashes:
                push_subtree(self.stack, 1, leaf)
        self.size = end
        if end in self.sizes:
            self.roots[end] = root_of_stack(self.stack)

    def root_with(self, hashes: list) -> bytes:
        stack = list(self.stack)
        for leaf in hashes:
            push_subtree(stack, 1, leaf)
        return root_of_stack(stack)


class DigestSet:
    """Digests in 32 bytes each. A set of a million `bytes` would need four times as much."""

    def __init__(self):
        self.buckets = [bytearray() for _ in range(256)]

    def add(self, digest: bytes) -> None:
        self.buckets[digest[0]] += digest

    def bucket(self, first_byte: int) -> set:
        data = bytes(self.buckets[first_byte])
        return {data[at : at + 32] for at in range(0, len(data), 32)}


# ---------------------------------------------------------------------------------------------
# 8. Bundles
# ---------------------------------------------------------------------------------------------

UNVERIFIED_FILES = frozenset([b"README.md", b"verify.py", b"policy", b"vkey"])
PART_NAME = re.compile(rb"[0-9a-f]{64}")


class Report:
    """The result: `verdict`, `findings` (a list of (code, place), both text), and what was verified."""

    def __init__(self):
        self.origin = None
        self.size = None
        self.root = None
        self.entries = 0
        self.parts = 0
        self.withheld = 0
        self.erasures = []  # (index, number of parts) of the entries that say what was erased
        self.cosignatures = []
        self.findings = []

    @property
    def verdict(self) -> str:
        return "invalid" if self.findings else "valid"

    def describe(self, checkpoint: Checkpoint, cosignatures: list) -> None:
        self.origin, self.size, self.root = checkpoint.origin, checkpoint.size, checkpoint.root
        self.cosignatures = cosignatures

    def as_json(self) -> dict:
        return {
            "verdict": self.verdict,
            "origin": self.origin,
            "size": self.size,
            "root": base64.b64encode(self.root).decode("ascii") if self.root is not None else None,
            "entries": self.entries,
            "parts": self.parts,
            "withheld": self.withheld,
            "erased": sum(parts for _, parts in self.erasures),
            "findings": [{"code": code, "place": place} for code, place in self.findings],
        }


class Bundle:
    """A verification of one bundle. The findings are kept by the step that they belong to, because
    steps 3 to 5 read the files together."""

    def __init__(self, root: bytes, trust: Trust):
        self.root = root
        self.trust = trust
        self.report = Report()
        self.checkpoint = None
        self.steps = {step: [] for step in range(1, 8)}
        self.counts = {}  # of findings, by code
        self.tiles = {level: set() for level in range(ENTRIES, TILE_LEVELS)}  # indexes of files that are there
        self.tile_roots = {level: {} for level in range(TILE_LEVELS)}  # of full tiles, by index
        self.differing = []  # indexes of entries that are not in their tile
        self.from_entries = self.from_tiles = None  # trees
        self.named = DigestSet()
        self.present = DigestSet()

    def add(self, step: int, code: str, place: bytes | int) -> None:
        self.counts[code] = self.counts.get(code, 0) + 1
        if self.counts[code] <= MAX_FINDINGS_OF_A_CODE:
            self.steps[step].append((code, place_text(place)))


def verify_bundle(path, trust: Trust, earlier=()) -> Report:
    """Verify the bundle in a folder, with earlier checkpoints in files. Raises VerificationError."""
    root = os.fsencode(path)
    if not os.path.isdir(root):
        raise VerificationError(f"{visible_path(root)}: no such folder")
    earlier = [(file, read_argument_file(file, MAX_CHECKPOINT_BYTES)) for file in earlier]
    bundle = Bundle(root, trust)
    try:
        verify_files(bundle, earlier)
    except OSError as error:
        raise VerificationError(f"{visible_path(root)}: {describe_error(error)}") from None
    bundle.report.findings = [finding for step in sorted(bundle.steps) for finding in bundle.steps[step]]
    return bundle.report


def verify_files(bundle: Bundle, earlier: list) -> None:
    try:
        data = read_regular_file(bundle, b"checkpoint", MAX_CHECKPOINT_BYTES + 1)
        bundle.checkpoint = checkpoint = read_checkpoint(data)
    except (MalformedError, FileNotFoundError):
        bundle.add(1, "checkpoint_malformed", b"checkpoint")
        return
    codes, cosignatures = verify_signatures(checkpoint, bundle.trust)
    if codes:
        bundle.add(2, codes[0], b"checkpoint")
        return
    bundle.report.describe(checkpoint, cosignatures)
    earlier = read_earlier(bundle, earlier)
    list_files(bundle)
    verify_leaves(bundle, {checkpoint.size} | {checkpoint.size for _, checkpoint in earlier})
    verify_higher_tiles(bundle)
    verify_root(bundle)
    verify_parts(bundle)
    verify_earlier(bundle, earlier)


def read_regular_file(bundle: Bundle, path: bytes, limit: int) -> bytes:
    """At most `limit` bytes of a file of the bundle. Raises MalformedError if it is not regular."""
    full = os.path.join(bundle.root, path)
    status = os.lstat(full)
    if not stat.S_ISREG(status.st_mode):
        raise MalformedError("not a regular file")
    with open_regular(full, os.O_NOFOLLOW) as file:
        return file.read(min(limit, status.st_size + 1))


def open_regular(path: bytes, flags: int):
    """A regular file, opened without waiting for the other end of a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{visible_path(path)} is not a regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_argument_file(path, limit: int) -> bytes:
    """At most limit + 1 bytes of a file that an argument names. Links are followed here."""
    try:
        with open_regular(os.fsencode(path), 0) as file:
            return file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise VerificationError(f"{visible_path(path)}: {describe_error(error)}") from None


def list_files(bundle: Bundle) -> None:
    """Step 3: each file that is there, and each one that is missing."""
    for entry in sorted(os.scandir(bundle.root), key=lambda entry: entry.name):
        name = entry.name
        if name in (b"tile", b"parts") and entry.is_dir(follow_symlinks=False):
            list_folder(bundle, name)
        elif name != b"checkpoint" and not (name in UNVERIFIED_FILES and entry.is_file(follow_symlinks=False)):
            bundle.add(3, "file_unexpected", name)
    missing = 0
    for level, index in required_tiles(bundle.checkpoint.size):
        if index not in bundle.tiles[level]:
            bundle.add(3, "file_missing", tile_path(level, index, tile_width(bundle.checkpoint.size, level, index)))
            missing += 1
            if missing == MAX_FINDINGS_OF_A_CODE:
                break


def list_folder(bundle: Bundle, top: bytes) -> None:
    folders = [top]
    while folders:
        folder = folders.pop()
        is_empty = True
        with os.scandir(os.path.join(bundle.root, folder)) as entries:
            for entry in entries:
                is_empty = False
                path = folder + b"/" + entry.name
                if entry.is_dir(follow_symlinks=False) and path.count(b"/") < MAX_FOLDER_DEPTH:
                    folders.append(path)
                elif entry.is_file(follow_symlinks=False):
                    list_file(bundle, path)
                else:
                    bundle.add(3, "file_unexpected", path)
        if is_empty and folder != top:
            bundle.add(3, "file_unexpected", folder)


def list_file(bundle: Bundle, path: bytes) -> None:
    if path.startswith(b"parts/"):
        name = path[len(b"parts/") :]
        if PART_NAME.fullmatch(name):
            bundle.present.add(bytes.fromhex(name.decode("ascii")))
        else:
            bundle.add(6, "file_unexpected", path)
        return
    tile = tile_of_path(path, bundle.checkpoint.size)
    if tile:
        bundle.tiles[tile[0]].add(tile[1])
    else:
        bundle.add(3, "file_unexpected", path)


def read_tile(bundle: Bundle, level: int, index: int):
    """The hashes of a tile (or the entries of a file), or None if it is not there or malformed."""
    if index not in bundle.tiles[level]:
        return None
    width = tile_width(bundle.checkpoint.size, level, index)
    path = tile_path(level, index, width)
    bytes_each = 2 + MAX_FRAMED_ENTRY_BYTES if level == ENTRIES else 32
    try:
        data = read_regular_file(bundle, path, bytes_each * width + 1)
        if level == ENTRIES:
            return split_entries(data, width)
        if len(data) != bytes_each * width:
            raise MalformedError("not 32 bytes for each hash")
        return [data[at : at + 32] for at in range(0, len(data), 32)]
    except MalformedError:
        bundle.add(3, "entries_malformed" if level == ENTRIES else "tile_malformed", path)
        return None


def verify_leaves(bundle: Bundle, sizes: set) -> None:
    """Steps 3 to 5 for the entries and the tiles of level 0."""
    bundle.from_entries, bundle.from_tiles = Tree(sizes), Tree(sizes)
    for index in sorted(bundle.tiles[ENTRIES] | bundle.tiles[0]):
        entries = read_tile(bundle, ENTRIES, index)
        hashes = read_tile(bundle, 0, index)
        root = None
        if hashes is not None:
            root = root_of_hashes(hashes)
            bundle.from_tiles.add_tile(index, hashes, root)
            if len(hashes) == TILE_WIDTH:
                bundle.tile_roots[0][index] = root
        if entries is not None:
            leaves = [leaf_hash(entry) for entry in entries]
            bundle.from_entries.add_tile(index, leaves, root if leaves == hashes else root_of_hashes(leaves))
            verify_entries(bundle, index * TILE_WIDTH, entries)
            if hashes is not None and leaves != hashes:
                bundle.differing += [
                    index * TILE_WIDTH + at for at, leaf in enumerate(leaves) if leaf != hashes[at]
                ]


def verify_entries(bundle: Bundle, first: int, entries: list) -> None:
    for index, entry in enumerate(entries, first):
        codes, parts = verify_entry(entry)
        for code in codes:
            bundle.add(5, code, index)
        if not codes and entry.startswith(b"countersign-entry/v1\nkind erase\n"):
            erased = re.search(rb"^erased (.*)$", entry, re.MULTILINE)
            bundle.report.erasures.append((index, len(erased[1].split(b" ")) if erased else 0))
        for digest in parts:
            bundle.named.add(digest)
    bundle.report.entries += len(entries)


def verify_higher_tiles(bundle: Bundle) -> None:
    """Steps 3 and 4 for the tiles of level 1 and more: each hash is the root of the tile below."""
    for level in range(1, TILE_LEVELS):
        for index in sorted(bundle.tiles[level]):
            hashes = read_tile(bundle, level, index)
            if hashes is None:
                continue
            if len(hashes) == TILE_WIDTH:
                bundle.tile_roots[level][index] = root_of_hashes(hashes)
            below = bundle.tile_roots[level - 1]
            first = index * TILE_WIDTH
            if any(below.get(at, hash_) != hash_ for at, hash_ in enumerate(hashes, first)):
                bundle.add(4, "tile_altered", tile_path(level, index, len(hashes)))


def verify_root(bundle: Bundle) -> None:
    """Step 4 for the whole tree."""
    size, root = bundle.checkpoint.size, bundle.checkpoint.root
    from_entries, from_tiles = bundle.from_entries.roots.get(size), bundle.from_tiles.roots.get(size)
    if from_entries == root:
        for index in sorted({index // TILE_WIDTH for index in bundle.differing}):
            bundle.add(4, "tile_altered", tile_path(0, index, tile_width(size, 0, index)))
    else:
        for index in bundle.differing:
            bundle.add(4, "entry_altered", index)
    if from_entries is not None and from_tiles is not None and root not in (from_entries, from_tiles):
        bundle.add(4, "root_mismatch", b"checkpoint")


def verify_parts(bundle: Bundle) -> None:
    """Step 6, in 256 rounds, so that memory is needed for a 256th of the digests only."""
    # An entry that could not be read may name a part.
    is_complete = bundle.checkpoint.size in bundle.from_entries.roots
    for first_byte in range(256):
        named, present = bundle.named.bucket(first_byte), bundle.present.bucket(first_byte)
        for digest in sorted(present):
            path = b"parts/" + digest.hex().encode("ascii")
            if not is_part_intact(bundle, path, digest):
                bundle.add(6, "part_altered", path)
            if digest not in named and is_complete:
                bundle.add(6, "file_unexpected", path)
        bundle.report.parts += len(named & present)
        bundle.report.withheld += len(named - present)


def is_part_intact(bundle: Bundle, path: bytes, digest: bytes) -> bool:
    hasher, size = hashlib.sha256(), 0
    with open_regular(os.path.join(bundle.root, path), os.O_NOFOLLOW) as file:
        while True:
            data = file.read(1 << 20)
            if not data:
                return size >= 16 and hasher.digest() == digest
            hasher.update(data)
            size += len(data)


def read_earlier(bundle: Bundle, earlier: list) -> list:
    """Steps 1 and 2 for earlier checkpoints. Return (place, checkpoint) of those that are accepted."""
    read = []
    for file, data in earlier:
        place = os.fsencode(file)
        try:
            checkpoint = read_checkpoint(data)
        except MalformedError:
            bundle.add(7, "checkpoint_malformed", place)
            continue
        codes, _ = verify_signatures(checkpoint, bundle.trust)
        if codes:
            bundle.add(7, codes[0], place)
        else:
            read.append((place, checkpoint))
    return read


def verify_earlier(bundle: Bundle, earlier: list) -> None:
    """Step 7. The bundle's tree is the one of its entries, as far as they could be read."""
    now = bundle.checkpoint
    for place, checkpoint in earlier:
        if checkpoint.size > now.size:
            bundle.add(7, "checkpoint_newer", place)
        root = bundle.from_entries.roots.get(checkpoint.size) if checkpoint.size <= now.size else None
        is_other = root is not None and root != checkpoint.root
        if is_other or checkpoint.origin != now.origin:
            bundle.add(7, "checkpoint_inconsistent", place)


# ---------------------------------------------------------------------------------------------
# 9. Proofs, and the command line
# ---------------------------------------------------------------------------------------------


def read_proof(data: bytes) -> tuple:
    """(entry, index, hashes, checkpoint) of a proof. Raises MalformedError."""
    if len(data) > MAX_PROOF_BYTES:
        raise MalformedError("too long")
    head, separator, note = data.partition(b"\n\n")
    try:
        lines = head.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise MalformedError("not UTF-8") from None
    if not separator or len(lines) < 3 or lines[0] != "c2sp.org/tlog-proof@v1":
        raise MalformedError("not a proof")
    if not lines[1].startswith("extra ") or not lines[2].startswith("index "):
        raise MalformedError("no extra or no index")
    if len(lines) > 66:
        raise MalformedError("more than 63 hashes")
    entry = decode_base64(lines[1][len("extra ") :])
    index = decode_decimal(lines[2][len("index ") :])
    return entry, index, [decode_hash(line) for line in lines[3:]], read_checkpoint(note)


def verify_proof(path, trust: Trust) -> Report:
    """Verify the proof of one entry in a file. Raises VerificationError."""
    report, place = Report(), place_text(os.fsencode(path))
    data = read_argument_file(path, MAX_PROOF_BYTES)
    try:
        entry, index, hashes, checkpoint = read_proof(data)
    except MalformedError:
        report.findings.append(("proof_malformed", place))
        return report
    codes, cosignatures = verify_signatures(checkpoint, trust)
    if codes:
        report.findings.append((codes[0], place))
        return report
    report.describe(checkpoint, cosignatures)
    codes, parts = verify_entry(entry)
    report.findings += [(code, place_text(index)) for code in codes]
    report.entries, report.withheld = 1, len(set(parts))
    if root_from_inclusion_proof(index, checkpoint.size, leaf_hash(entry), hashes) != checkpoint.root:
        report.findings.append(("proof_invalid", place))
    return report


SENTENCES = {
    "checkpoint_malformed": "The checkpoint {} is not a signed checkpoint.",
    "checkpoint_unsigned": "The checkpoint in {} has no signature of a log that you trust.",
    "policy_not_met": "The checkpoint in {} does not have the cosignatures that the policy requires.",
    "signature_invalid": "In {}, a signature of a known key does not verify, or a key has signed twice.",
    "file_unexpected": "The file {} does not belong in the bundle.",
    "file_missing": "The file {} is missing.",
    "tile_malformed": "The tile {} has the wrong length.",
    "entries_malformed": "The file {} does not have exactly the entries that it should have.",
    "tile_altered": "The tile {} was altered.",
    "entry_altered": "Entry {} was altered.",
    "root_mismatch": "The entries do not lead to the root in {}.",
    "entry_too_long": "Entry {} has more than 8,192 bytes.",
    "entry_malformed": "Entry {} is not in the format of entries.",
    "part_altered": "The part {} was altered.",
    "checkpoint_newer": "The checkpoint {} is newer than the bundle.",
    "checkpoint_inconsistent": "The checkpoint {} is not of an earlier state of this log: history was rewritten.",
    "proof_malformed": "The file {} is not the proof of an entry.",
    "proof_invalid": "The proof {} does not lead from the entry to the root.",
}


def place_text(place: bytes | int) -> str:
    return str(place) if isinstance(place, int) else place.decode("utf-8", "replace")


def visible(text: str) -> str:
    """Text without characters that would act on a terminal."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def visible_path(path) -> str:
    return visible(place_text(os.fsencode(path)))


def describe_error(error: Exception) -> str:
    name = getattr(error, "filename", None)
    text = getattr(error, "strerror", None) or str(error)
    return f"{text}: {visible_path(name)}" if isinstance(name, (bytes, str)) else text


def time_text(timestamp: int) -> str:
    try:
        time = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=timestamp)
    except OverflowError:
        return f"{timestamp} seconds after 1970"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def plain_lines(report: Report) -> list:
    lines = [f"{report.verdict}: {len(report.findings)} findings" if report.findings else "valid"]
    for code, place in report.findings:
        lines.append(f"  {SENTENCES[code].format(visible(place))} ({code}: {visible(place)})")
    if report.origin is not None:
        root = base64.b64encode(report.root).decode("ascii")
        lines.append(f"origin {visible(report.origin)}, size {report.size}, root {root}")
        lines.append(f"{report.entries} entries, {report.parts} parts present, {report.withheld} withheld")
    if report.erasures:
        erased, first = sum(parts for _, parts in report.erasures), report.erasures[0][0]
        by = f"entry {first}" if len(report.erasures) == 1 else f"{len(report.erasures)} entries, first {first}"
        lines.append(f"{erased} parts erased by {by}")
    for name, time in report.cosignatures:
        lines.append(f"cosigned by {visible(name)} at {time_text(time)}")
    return lines


def parse_arguments(arguments: list) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="verify.py", allow_abbrev=False, description="Verify a bundle or a proof of countersign's log."
    )
    parser.add_argument("dir", metavar="DIR", nargs="?", help="the folder of a bundle")
    parser.add_argument("--proof", metavar="FILE", help="the proof of one entry, instead of a bundle")
    parser.add_argument("--vkey", metavar="KEY", action="append", default=[], help="a key of the log that you trust")
    parser.add_argument("--policy", metavar="FILE", help="a policy of logs and witnesses that you trust")
    parser.add_argument("--checkpoint", metavar="FILE", action="append", default=[], help="an earlier checkpoint")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if (options.dir is None) == (options.proof is None):
        parser.error("give either the folder of a bundle or --proof FILE")
    if options.proof is not None and options.checkpoint:
        parser.error("--checkpoint is for bundles, not for proofs")
    return options


def main(arguments: list) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    options = parse_arguments(arguments)
    try:
        if sys.stdout is None:
            raise VerificationError("standard output is closed")
        trust = make_trust(options.vkey, options.policy)
        if options.proof is not None:
            report = verify_proof(options.proof, trust)
        else:
            report = verify_bundle(options.dir, trust, options.checkpoint)
        if options.json:
            print(json.dumps(report.as_json()))
        else:
            print("\n".join(plain_lines(report)))
            if options.dir is not None and os.path.lexists(os.path.join(options.dir, "checkpoint.incomplete")):
                print("The export into this folder is not complete: it is running, or it was interrupted.")
        sys.stdout.flush()
    except VerificationError as error:
        print(f"verify.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # standard output was closed
        print(f"verify.py: {describe_error(error)}", file=sys.stderr)
        sys.stdout = open(os.devnull, "w")
        return 2
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
