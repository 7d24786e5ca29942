#!/usr/bin/env python3
"""Verifies an exported log of countersign, or the proof of one entry, with nothing but Python.

    verify.py DIR (--vkey KEY)... [--policy FILE] [--checkpoint FILE]... [--json]
    verify.py --proof FILE (--vkey KEY)... [--policy FILE] [--json]

This is a second verifier: it shares no code with countersign and was written from the specifications
(docs/reference/log-format.md, c2sp.org, RFC 6962, RFC 8032). Exit codes: 0 valid, 1 invalid,
2 nothing could be verified.
"""

import argparse
import base64
import binascii
import hashlib
import json
import os
import re
import stat
import sys

MAX_NOTE = 65_536
MAX_ENTRY = 8_192
TILE = 256
MOST_OF_A_CODE = 1_000
NOT_VERIFIED = ("README.md", "verify.py", "policy", "vkey")
EMPTY_ROOT = hashlib.sha256(b"").digest()


class CannotVerify(Exception):
    """The verification could not run."""


class Malformed(Exception):
    """Bytes that are not what they should be."""


# ------------------------------------------------------------------------------------- Ed25519 (RFC 8032)

P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
SQRT_M1 = pow(2, (P - 1) // 4, P)


def point_add(a, b):
    """The sum of two points in extended coordinates."""
    x = (a[1] - a[0]) * (b[1] - b[0]) % P
    y = (a[1] + a[0]) * (b[1] + b[0]) % P
    t = 2 * a[3] * b[3] * D % P
    z = 2 * a[2] * b[2] % P
    e, f, g, h = y - x, z - t, z + t, y + x
    return e * f % P, g * h % P, f * g % P, e * h % P


def point_multiply(scalar, point):
    result = (0, 1, 1, 0)
    while scalar > 0:
        if scalar & 1:
            result = point_add(result, point)
        point = point_add(point, point)
        scalar >>= 1
    return result


def point_decompress(data):
    """A point from its 32 bytes; None if there is none, or if the bytes are not its canonical form."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P != 0:
        x = x * SQRT_M1 % P
    if (x * x - square) % P != 0 or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


def point_compress(point):
    inverse = pow(point[2], P - 2, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


BASE = point_decompress(bytes.fromhex("58" + "66" * 31))


def ed25519_verify(public, message, signature):
    """Whether the signature is valid: S is below the order, and R is compared as bytes."""
    if len(signature) != 64 or len(public) != 32:
        return False
    key = point_decompress(public)
    s = int.from_bytes(signature[32:], "little")
    if key is None or s >= Q:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % Q
    minus_key = (P - key[0], key[1], key[2], P - key[3])
    r = point_add(point_multiply(s, BASE), point_multiply(k, minus_key))
    return point_compress(r) == signature[:32]


# ---------------------------------------------------------------------------------------- tree (RFC 6962)


def leaf_hash(entry):
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left, right):
    return hashlib.sha256(b"\x01" + left + right).digest()


class Tree:
    """The right edge of a growing tree."""

    def __init__(self):
        self.size = 0
        self.subtrees = []  # (leaves, root), the largest first

    def append(self, leaf):
        leaves, root = 1, leaf
        while self.subtrees and self.subtrees[-1][0] == leaves:
            _, left = self.subtrees.pop()
            leaves, root = leaves * 2, node_hash(left, root)
        self.subtrees.append((leaves, root))
        self.size += 1

    def root(self):
        if not self.subtrees:
            return EMPTY_ROOT
        root = self.subtrees[-1][1]
        for _, left in reversed(self.subtrees[:-1]):
            root = node_hash(left, root)
        return root


def root_of(hashes):
    tree = Tree()
    for one in hashes:
        tree.append(one)
    return tree.root()


def inclusion_root(leaf, index, size, proof):
    """The root that an inclusion proof leads to; None if the proof has another length than it must have."""
    hashes = list(proof)

    def climb(first, end):
        if end - first == 1:
            return leaf
        middle = first + (1 << ((end - first - 1).bit_length() - 1))
        if index < middle:
            own = climb(first, middle)
            return node_hash(own, hashes.pop(0))
        own = climb(middle, end)
        return node_hash(hashes.pop(0), own)

    if not 0 <= index < size:
        return None
    try:
        root = climb(0, size)
    except IndexError:
        return None
    return None if hashes else root


# ------------------------------------------------------------------------------- keys, notes, checkpoints


def decode_base64(text):
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed("not base64") from error
    if base64.b64encode(data).decode() != text:
        raise Malformed("not canonical base64")
    return data


def is_key_name(name):
    return bool(name) and not any(c.isspace() or ord(c) < 32 or 127 <= ord(c) < 160 or c == "+" for c in name)


class Key:
    """A verifier key: of a log (type 1), or of a witness (type 4)."""

    def __init__(self, text):
        parts = text.split("+", 2)
        if len(parts) != 3 or not re.fullmatch(r"[0-9a-f]{8}", parts[1]):
            raise Malformed("a key is a name, 8 hexadecimal digits and base64, with + between them")
        data = decode_base64(parts[2])
        if not is_key_name(parts[0]) or len(data) != 33 or data[0] not in (1, 4):
            raise Malformed("not an Ed25519 key of a log (type 1) or of a witness (type 4)")
        self.name, self.kind, self.public = parts[0], data[0], data[1:]
        self.id = hashlib.sha256(self.name.encode() + b"\n" + data).digest()[:4]
        if self.id.hex() != parts[1]:
            raise Malformed("the id of the key does not fit")

    def verify(self, text, signature):
        """None if the signature is wrong; else the time of a cosignature, or 0."""
        if self.kind == 1:
            return 0 if ed25519_verify(self.public, text.encode(), signature) else None
        if len(signature) != 72:
            return None
        time = int.from_bytes(signature[:8], "big")
        message = f"cosignature/v1\ntime {time}\n{text}".encode()
        return time if time < 2**63 and ed25519_verify(self.public, message, signature[8:]) else None


def parse_note(data):
    """The text of a signed note, and its signatures: name, id, bytes."""
    if len(data) > MAX_NOTE:
        raise Malformed("too large")
    try:
        note = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("not UTF-8") from error
    if any(ord(c) < 32 and c != "\n" for c in note):
        raise Malformed("a control character")
    split = note.rfind("\n\n")
    if split < 0 or not note.endswith("\n"):
        raise Malformed("no signatures")
    text, lines = note[: split + 1], note[split + 2 : -1]
    signatures = []
    for line in lines.split("\n"):
        words = line.split(" ", 2)
        if len(words) != 3 or words[0] != "\u2014" or not is_key_name(words[1]):
            raise Malformed("a signature is a dash, a name and base64")
        signature = decode_base64(words[2])
        if len(signature) < 5:
            raise Malformed("a signature is too short")
        signatures.append((words[1], signature[:4], signature[4:]))
    return text, signatures


def parse_number(text):
    if not re.fullmatch(r"0|[1-9][0-9]*", text, re.ASCII) or int(text) >= 2**63:
        raise Malformed("not a number")
    return int(text)


def parse_checkpoint(text):
    """Origin, size and root."""
    lines = text.split("\n")
    if len(lines) != 4 or lines[3] or not lines[0]:
        raise Malformed("a checkpoint has three lines")
    root = decode_base64(lines[2])
    if len(root) != 32:
        raise Malformed("a root has 32 bytes")
    return lines[0], parse_number(lines[1]), root


# -------------------------------------------------------------------------------------------------- policy


class Policy:
    """Logs, witnesses, and the quorum: a function of the set of keys that have cosigned."""

    def __init__(self, data):
        self.logs, self.witnesses, self.members, self.used = [], [], {}, set()
        self.quorum = None
        if data and not data.endswith(b"\n"):
            raise Malformed("the last line has no end")
        for number, line in enumerate(data.split(b"\n"), 1):
            try:
                self.read(line)
            except Malformed as error:
                raise Malformed(f"line {number} of the policy: {error}") from error
        if self.quorum is None:
            raise Malformed("the policy has no quorum")

    def read(self, line):
        if any(byte < 32 and byte != 9 or byte == 127 for byte in line):
            raise Malformed("a control character")
        words = [word for word in re.split(rb"[ \t]+", line) if word]
        if not words or words[0].startswith(b"#"):
            return
        kind, count = words[0], len(words)
        if kind == b"log" and count in (2, 3):
            self.logs.append(self.key(words[1], 1, self.logs))
        elif kind == b"witness" and count in (3, 4):
            key = self.key(words[2], 4, self.witnesses)
            self.witnesses.append(key)
            self.define(words[1], lambda signers: key in signers)
        elif kind == b"group" and count >= 4:
            self.group(words[1], words[2], words[3:])
        elif kind == b"quorum" and count == 2 and self.quorum is None:
            self.quorum = (lambda _: True) if words[1] == b"none" else self.take(words[1])
        else:
            raise Malformed("not a line of a policy")

    @staticmethod
    def key(word, kind, known):
        try:
            key = Key(word.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise Malformed("a key that is not UTF-8") from error
        if key.kind != kind:
            raise Malformed("a key of the wrong type")
        if any(key.public == other.public for other in known):
            raise Malformed("a key that is there already")
        return key

    def define(self, name, member):
        if name == b"none" or name in self.members:
            raise Malformed("a name that is taken")
        self.members[name] = member

    def take(self, name):
        if name not in self.members or name in self.used:
            raise Malformed("a name that is not defined above, or is a member already")
        self.used.add(name)
        return self.members[name]

    def group(self, name, needed, names):
        if needed == b"all":
            least = len(names)
        elif needed == b"any":
            least = 1
        elif re.fullmatch(rb"[1-9][0-9]*", needed) and int(needed) <= len(names):
            least = int(needed)
        else:
            raise Malformed("a group takes all, any, or a number of its members")
        members = [self.take(member) for member in names]
        self.define(name, lambda signers: sum(member(signers) for member in members) >= least)


class Trust:
    """Keys, a policy, or both."""

    def __init__(self, keys, policy=None):
        self.keys, self.policy = keys, policy

    def problem(self, text, signatures, origin, cosigned):
        """The code of what is wrong with the signatures of a checkpoint, or None."""
        logs = self.policy.logs if self.policy else []
        witnesses = self.policy.witnesses if self.policy else []
        known = {}
        for key in self.keys + logs + witnesses:
            known.setdefault((key.name, key.id), key)
        signers = set()
        for name, key_id, signature in signatures:
            key = known.get((name, key_id))
            if key is None:
                continue
            time = key.verify(text, signature)
            if time is None or key in signers:
                return "signature_invalid"
            signers.add(key)
            if key.kind == 4:
                cosigned.append((name, time))

        def is_signed(keys):
            own = {(key.name, key.public, key.kind) for key in keys}
            return any(key.name == origin and (key.name, key.public, key.kind) in own for key in signers)

        if (self.keys or not self.policy) and not is_signed(self.keys):
            return "checkpoint_unsigned"
        if self.policy and (logs or not self.keys) and not is_signed(logs):
            return "checkpoint_unsigned"
        if self.policy and not self.policy.quorum(signers):
            return "policy_not_met"
        return None


# ------------------------------------------------------------------------------------------------- entries

ENCODED = re.compile(r"[\x00-\x1f\x7f-\x9f%]")


def encode_value(value):
    return ENCODED.sub(lambda c: "".join(f"%{byte:02X}" for byte in c.group().encode()), value)


def decode_value(value):
    """The value, if it is encoded as it should be."""
    if not ENCODED.search(value):
        return value
    data = re.sub(rb"%([0-9A-F]{2})", lambda digits: bytes([int(digits.group(1), 16)]), value.encode())
    try:
        decoded = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("not UTF-8") from error
    if encode_value(decoded) != value:
        raise Malformed("not percent-encoded as it should be")
    return decoded


def parse_entry(data):
    """The fields of an entry."""
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise Malformed("not UTF-8") from error
    if len(lines) < 3 or lines[0] != "countersign-entry/v1" or lines[-1]:
        raise Malformed("not an entry")
    fields = {}
    for line in lines[1:-1]:
        key, space, value = line.partition(" ")
        if not re.fullmatch(r"[a-z][a-z0-9_]*", key, re.ASCII) or not space or not value or key in fields:
            raise Malformed("not a key and a value")
        if not fields and key != "kind":
            raise Malformed("kind is not the first key")
        fields[key] = decode_value(value)
    return fields


def named_parts(fields):
    values = (re.fullmatch(r"sha256:([0-9a-f]{64})", value, re.ASCII) for value in fields.values())
    return [value.group(1) for value in values if value]


# ------------------------------------------------------------------------------------------------- bundles


class Report:
    """What a verification found."""

    def __init__(self):
        self.origin = self.size = self.root = None
        self.entries = self.parts = self.withheld = 0
        self.cosigned, self.findings, self.counts = [], [], {}

    def find(self, code, place):
        if not self.is_full(code):
            self.counts[code] = self.counts.get(code, 0) + 1
            self.findings.append((code, str(place)))

    def is_full(self, code):
        return self.counts.get(code, 0) >= MOST_OF_A_CODE

    def is_valid(self):
        return not self.findings

    def as_json(self):
        return {
            "verdict": "valid" if self.is_valid() else "invalid",
            "origin": self.origin,
            "size": self.size,
            "root": base64.b64encode(self.root).decode() if self.root else None,
            "entries": self.entries,
            "parts": self.parts,
            "withheld": self.withheld,
            "findings": [{"code": code, "place": place} for code, place in self.findings],
        }


def tile_widths(size, level):
    """The widths of the tiles of a level."""
    hashes = size >> (8 * level)
    index = 0
    while index * TILE < hashes:
        yield index, min(TILE, hashes - index * TILE)
        index += 1


def tile_place(index, width):
    place = f"{index % 1000:03}"
    index //= 1000
    while index:
        place = f"x{index % 1000:03}/{place}"
        index //= 1000
    return place if width == TILE else f"{place}.p/{width}"


def read_file(path, most):
    """The bytes of a regular file; None if there is none, or if it is larger."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CannotVerify(error) from error
    if not stat.S_ISREG(found.st_mode):
        return None
    try:
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise CannotVerify(error) from error
    return data if len(data) <= most else b""


def is_regular(path):
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def open_checkpoint(path, place, trust, report):
    """Origin, size and root of a signed checkpoint; None after a finding."""
    try:
        text, signatures = parse_note(read_file(path, MAX_NOTE) or b"")
        checkpoint = parse_checkpoint(text)
    except Malformed:
        report.find("checkpoint_malformed", place)
        return None
    cosigned = []
    problem = trust.problem(text, signatures, checkpoint[0], cosigned)
    if problem:
        report.find(problem, place)
        return None
    report.cosigned += cosigned
    return checkpoint


def scan(path):
    """Name, whether a regular file, whether a folder; in the order of the names."""
    try:
        with os.scandir(os.fsencode(path)) as found:
            names = [
                (
                    os.fsdecode(one.name).encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
                    one.is_file(follow_symlinks=False),
                    one.is_dir(follow_symlinks=False),
                )
                for one in found
            ]
    except OSError as error:
        raise CannotVerify(error) from error
    return sorted(names, key=lambda one: one[0].encode())


def belongs(path, size):
    """Whether a bundle of this size has a file at this path."""
    match = re.fullmatch(r"tile/(entries|[0-9])/((?:x[0-9]{3}/)*)([0-9]{3})(?:\.p/([0-9]+))?", path, re.ASCII)
    if not match:
        return False
    level = 0 if match.group(1) == "entries" else int(match.group(1))
    index = int(re.sub(r"[x/]", "", match.group(2)) + match.group(3))
    width = min(TILE, (size >> (8 * level)) - index * TILE)
    return level < 8 and width > 0 and path == f"tile/{match.group(1)}/{tile_place(index, width)}"


def walk(root, folder, size, report):
    names = scan(os.path.join(root, folder))
    if not names:
        report.find("file_unexpected", folder)
    for name, _, is_folder in names:
        path = f"{folder}/{name}"
        if is_folder:
            walk(root, path, size, report)
        elif not belongs(path, size):
            report.find("file_unexpected", path)


def examine_files(root, size, report):
    """Reports files that are missing or do not belong there. The names of the parts."""
    parts = []
    for name, is_file, is_folder in scan(root):
        if name == "checkpoint":
            continue
        if name == "tile" and is_folder:
            walk(root, name, size, report)
        elif name == "parts" and is_folder:
            names = scan(os.path.join(root, name))
            if not names:
                report.find("file_unexpected", name)
            for part, part_is_file, _ in names:
                if part_is_file and re.fullmatch(r"[0-9a-f]{64}", part, re.ASCII):
                    parts.append(part)
                else:
                    report.find("file_unexpected", f"parts/{part}")
        elif not (is_file and name in NOT_VERIFIED):
            report.find("file_unexpected", name)
    for level in range(8):
        for index, width in tile_widths(size, level):
            kinds = [str(level), "entries"] if level == 0 else [str(level)]
            for kind in kinds:
                path = f"tile/{kind}/{tile_place(index, width)}"
                if not is_regular(os.path.join(root, path)):
                    report.find("file_missing", path)
            if report.is_full("file_missing"):
                return parts
    return parts


def read_tile(root, level, index, width, report):
    path = f"tile/{level}/{tile_place(index, width)}"
    data = read_file(os.path.join(root, path), TILE * 32)
    if data is None:
        return None
    if len(data) != width * 32:
        report.find("tile_malformed", path)
        return None
    return [data[at : at + 32] for at in range(0, len(data), 32)]


def read_entries(root, index, width, report):
    path = f"tile/entries/{tile_place(index, width)}"
    data = read_file(os.path.join(root, path), TILE * 65_537)
    if data is None:
        return None
    entries, at = [], 0
    while at + 2 <= len(data):
        length = int.from_bytes(data[at : at + 2], "big")
        if at + 2 + length > len(data):
            break
        entries.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    if at != len(data) or len(entries) != width:
        report.find("entries_malformed", path)
        return None
    return entries


class Level0:
    """What reading the entries and the tiles of level 0 side by side has shown."""

    def __init__(self, sizes):
        self.from_entries, self.from_tiles = Tree(), Tree()
        self.differing, self.roots, self.long, self.malformed, self.named = [], [], [], [], set()
        self.sizes = {size: EMPTY_ROOT if size == 0 else None for size in sizes}

    def add(self, index, width, entries, tile, report):
        hashes = [leaf_hash(entry) for entry in entries] if entries is not None else None
        if hashes is not None and tile is not None:
            path = f"tile/0/{tile_place(index, width)}"
            self.differing += [
                (index * TILE + at, path) for at, (own, other) in enumerate(zip(hashes, tile)) if own != other
            ]
        for at, entry in enumerate(entries or [], index * TILE):
            self.read_entry(at, entry, report)
        self.from_tiles = extend(self.from_tiles, tile, {})
        self.from_entries = extend(self.from_entries, hashes, self.sizes)
        if width == TILE:
            self.roots.append(root_of(tile) if tile is not None else None)

    def read_entry(self, index, entry, report):
        report.entries += 1
        if len(entry) > MAX_ENTRY:
            self.long.append(index)
        try:
            self.named.update(bytes.fromhex(part) for part in named_parts(parse_entry(entry)))
        except Malformed:
            self.malformed.append(index)


def extend(tree, hashes, sizes):
    if tree is None or hashes is None:
        return None
    for one in hashes:
        tree.append(one)
        if tree.size in sizes:
            sizes[tree.size] = tree.root()
    return tree


def verify_tree(root, size, expected, earlier_sizes, report):
    """Steps 4 and 5. The level 0, which knows the named parts and earlier roots."""
    bottom = Level0(earlier_sizes)
    for index, width in tile_widths(size, 0):
        if report.is_full("file_missing"):
            bottom.from_entries = bottom.from_tiles = None
            break
        entries = read_entries(root, index, width, report)
        bottom.add(index, width, entries, read_tile(root, 0, index, width, report), report)
    altered, below = [], bottom.roots
    for level in range(1, 8):
        if not size >> (8 * level) or report.is_full("file_missing"):
            break
        roots = []
        for index, width in tile_widths(size, level):
            tile = read_tile(root, level, index, width, report)
            own = below[index * TILE : index * TILE + width]
            if tile is not None and any(a is not None and a != b for a, b in zip(own, tile)):
                altered.append(f"tile/{level}/{tile_place(index, width)}")
            if width == TILE:
                roots.append(root_of(tile) if tile is not None else None)
        below = roots
    from_entries = bottom.from_entries and bottom.from_entries.root()
    from_tiles = bottom.from_tiles and bottom.from_tiles.root()
    last = None
    for index, path in bottom.differing:
        if from_entries != expected:
            report.find("entry_altered", index)
        elif path != last:
            report.find("tile_altered", path)
        last = path
    for path in altered:
        report.find("tile_altered", path)
    if from_entries and from_tiles and expected not in (from_entries, from_tiles):
        report.find("root_mismatch", "checkpoint")
    for index in bottom.long:
        report.find("entry_too_long", index)
    for index in bottom.malformed:
        report.find("entry_malformed", index)
    return bottom


def verify_parts(root, parts, bottom, report):
    present = {bytes.fromhex(part) for part in parts}
    report.withheld = sum(digest not in present for digest in bottom.named)
    for part in parts:
        place = f"parts/{part}"
        if bytes.fromhex(part) not in bottom.named and bottom.from_entries is not None:
            report.find("file_unexpected", place)
            continue
        report.parts += 1
        digest, length = hashlib.sha256(), 0
        try:
            with open(os.path.join(root, place), "rb") as file:
                while chunk := file.read(65_536):
                    digest.update(chunk)
                    length += len(chunk)
        except OSError as error:
            raise CannotVerify(error) from error
        if digest.hexdigest() != part or length < 16:
            report.find("part_altered", place)


def verify_bundle(root, trust, earlier=()):
    """Verifies a bundle. Raises CannotVerify if it cannot be read."""
    report, later = Report(), Report()
    if not os.path.isdir(root):
        raise CannotVerify(f"{root} is no folder")
    checkpoint = open_checkpoint(os.path.join(root, "checkpoint"), "checkpoint", trust, report)
    if checkpoint is None:
        return report
    kept = []
    for path in earlier:
        if not os.path.exists(path):
            raise CannotVerify(f"{path} does not exist")
        one = open_checkpoint(path, path, trust, later)
        if one:
            kept.append((path, one))
    report.origin, report.size, report.root = checkpoint
    parts = examine_files(root, report.size, report)
    bottom = verify_tree(root, report.size, report.root, {one[1] for _, one in kept}, report)
    verify_parts(root, parts, bottom, report)
    for code, place in later.findings:
        report.find(code, place)
    for path, (origin, size, earlier_root) in kept:
        if origin != report.origin:
            report.find("checkpoint_inconsistent", path)
        elif size > report.size:
            report.find("checkpoint_newer", path)
        elif bottom.sizes[size] not in (None, earlier_root):
            report.find("checkpoint_inconsistent", path)
    return report


def parse_proof(data):
    """Entry, index, hashes, and the checkpoint as bytes."""
    head, separator, note = data.partition(b"\n\n")
    try:
        lines = head.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise Malformed("not ASCII") from error
    if not separator or len(lines) < 3 or lines[0] != "c2sp.org/tlog-proof@v1":
        raise Malformed("not a proof")
    if not lines[1].startswith("extra ") or not lines[2].startswith("index "):
        raise Malformed("no entry or no index")
    hashes = [decode_base64(line) for line in lines[3:]]
    if len(hashes) > 63 or any(len(one) != 32 for one in hashes):
        raise Malformed("not hashes")
    return decode_base64(lines[1][6:]), parse_number(lines[2][6:]), hashes, note


def verify_proof(path, trust):
    """Verifies the proof of one entry."""
    report = Report()
    try:
        with open(path, "rb") as file:
            entry, index, hashes, note = parse_proof(file.read(1 << 20))
        text, signatures = parse_note(note)
    except OSError as error:
        raise CannotVerify(error) from error
    except Malformed:
        report.find("proof_malformed", path)
        return report
    try:
        origin, size, root = parse_checkpoint(text)
    except Malformed:
        report.find("checkpoint_malformed", path)
        return report
    problem = trust.problem(text, signatures, origin, report.cosigned)
    if problem:
        report.find(problem, path)
        return report
    if inclusion_root(leaf_hash(entry), index, size, hashes) != root:
        report.find("proof_invalid", path)
    if len(entry) > MAX_ENTRY:
        report.find("entry_too_long", index)
    try:
        parse_entry(entry)
    except Malformed:
        report.find("entry_malformed", index)
    report.entries, report.origin, report.size, report.root = 1, origin, size, root
    return report


# -------------------------------------------------------------------------------------------- command line


def read_trust(vkeys, policy):
    try:
        keys = [Key(vkey) for vkey in vkeys]
        if policy is None:
            return Trust(keys)
        with open(policy, "rb") as file:
            return Trust(keys, Policy(file.read()))
    except (Malformed, OSError) as error:
        raise CannotVerify(error) from error


def describe(report, what):
    for code, place in report.findings:
        yield f"Does not agree: {place}: {code.replace('_', ' ')} ({code})."
    if report.is_valid():
        root = base64.b64encode(report.root).decode()
        yield f"{what} is valid: {report.size} entries of {report.origin}, root {root}."
        yield f"{report.entries} entries were verified, with {report.parts} parts; {report.withheld} parts are not here."
        for name, time in report.cosigned:
            yield f"Cosigned by {name} at {time} (seconds since 1970)."


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("dir", nargs="?", help="the folder of the bundle")
    parser.add_argument("--proof", help="verify the proof of one entry in this file instead")
    parser.add_argument("--vkey", action="append", default=[], help="a public key of the log")
    parser.add_argument("--policy", help="a file with a policy (c2sp.org/tlog-policy)")
    parser.add_argument("--checkpoint", action="append", default=[], help="a file with an earlier checkpoint")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if (arguments.dir is None) == (arguments.proof is None):
        parser.error("give a folder, or --proof and a file")
    if not arguments.vkey and arguments.policy is None:
        parser.error("give --vkey or --policy: a key that lies beside the log proves nothing")
    try:
        trust = read_trust(arguments.vkey, arguments.policy)
        if arguments.proof is not None:
            report = verify_proof(arguments.proof, trust)
        else:
            report = verify_bundle(arguments.dir, trust, arguments.checkpoint)
    except CannotVerify as error:
        print(f"verify.py: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(report.as_json()))
    else:
        for line in describe(report, "The proof" if arguments.proof is not None else "The bundle"):
            print(line.encode("unicode_escape").decode() if not line.isprintable() else line)
    return 0 if report.is_valid() else 1


if __name__ == "__main__":
    sys.exit(main())
