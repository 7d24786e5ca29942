"""Tests of docs/verify.py, with a builder of bundles of their own. Run: python3 tests/python/test_verify.py"""

import base64
import contextlib
import functools
import hashlib
import io
import json
import os
import pathlib
import random
import shutil
import struct
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs"))

import compare_verifiers  # noqa: E402
import mutate_bundle  # noqa: E402
import verify  # noqa: E402

# A pure function. Most tests verify the same few signatures again and again.
verify.verify_ed25519 = functools.lru_cache(maxsize=None)(verify.verify_ed25519)

ORIGIN = "example.com/log"
TIME = 1_760_000_000


# --- The builder of bundles ---------------------------------------------------------------------


def multiply(scalar, point):
    result = verify.IDENTITY
    for bit in range(scalar.bit_length() - 1, -1, -1):
        result = verify.double_point(result)
        if scalar >> bit & 1:
            result = verify.add_points(result, point)
    return verify.encode_point(result)


class Signer:
    """A signing key. A witness signs with a time."""

    def __init__(self, name, seed, is_witness=False):
        digest = hashlib.sha512(seed).digest()
        self.name, self.is_witness, self.prefix = name, is_witness, digest[32:]
        self.scalar = int.from_bytes(digest[:32], "little") & (2**254 - 8) | 2**254
        self.public = multiply(self.scalar, verify.BASE)
        material = bytes([4 if is_witness else 1]) + self.public
        self.id = hashlib.sha256(name.encode() + b"\n" + material).digest()[:4]
        self.vkey = f"{name}+{self.id.hex()}+{base64.b64encode(material).decode()}"

    def sign(self, message):
        r = int.from_bytes(hashlib.sha512(self.prefix + message).digest(), "little") % verify.L
        encoded = multiply(r, verify.BASE)
        k = int.from_bytes(hashlib.sha512(encoded + self.public + message).digest(), "little") % verify.L
        return encoded + ((r + k * self.scalar) % verify.L).to_bytes(32, "little")

    def line(self, text, time=TIME):
        if self.is_witness:
            signature = struct.pack(">Q", time) + self.sign(b"cosignature/v1\ntime %d\n" % time + text)
        else:
            signature = self.sign(text)
        return signature_line(self.name, self.id + signature)


def signature_line(name, data):
    return f"\u2014 {name} {base64.b64encode(data).decode()}\n".encode()


LOG = Signer(ORIGIN, b"log")
OTHER = Signer("example.com/other", b"other")
WITNESSES = [Signer(f"w{number}.example", b"witness %d" % number, True) for number in range(4)]


def sign_checkpoint(size, root, signers=(LOG,), origin=ORIGIN, extra=""):
    text = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n{extra}".encode()
    return text + b"\n" + b"".join(signer.line(text) for signer in signers)


def merkle_root(hashes):
    """The recursive definition of RFC 6962, section 2.1, over leaf hashes."""
    if len(hashes) == 0:
        return hashlib.sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    k = 1 << (len(hashes) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + merkle_root(hashes[:k]) + merkle_root(hashes[k:])).digest()


def inclusion_proof(index, hashes):
    """PATH of RFC 6962, section 2.1.1."""
    if len(hashes) <= 1:
        return []
    k = 1 << (len(hashes) - 1).bit_length() - 1
    if index < k:
        return inclusion_proof(index, hashes[:k]) + [merkle_root(hashes[k:])]
    return inclusion_proof(index - k, hashes[k:]) + [merkle_root(hashes[:k])]


def leaf(entry):
    return hashlib.sha256(b"\0" + entry).digest()


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def path_of_index(index, width):
    digits = str(index).zfill((len(str(index)) + 2) // 3 * 3)
    groups = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    return "/".join(["x" + group for group in groups[:-1]] + groups[-1:]) + ("" if width == 256 else f".p/{width}")


def write_tiles(folder, name, items):
    for start in range(0, len(items), 256):
        tile = items[start : start + 256]
        write(folder / "tile" / name / path_of_index(start // 256, len(tile)), b"".join(tile))


def write_bundle(folder, entries, parts=(), signers=(LOG,), root=None):
    """Write a bundle, and return its root. `parts` are salts with contents."""
    write_tiles(folder, "entries", [struct.pack(">H", len(entry)) + entry for entry in entries])
    hashes = leaves = [leaf(entry) for entry in entries]
    level = 0
    while hashes:
        write_tiles(folder, str(level), hashes)
        full = len(hashes) - len(hashes) % 256
        hashes = [merkle_root(hashes[at : at + 256]) for at in range(0, full, 256)]
        level += 1
    for part in parts:
        write(folder / "parts" / hashlib.sha256(part).hexdigest(), part)
    root = root or merkle_root(leaves)
    write(folder / "checkpoint", sign_checkpoint(len(entries), root, signers))
    return root


def entry(*lines):
    return "".join(f"{line}\n" for line in ("countersign-entry/v1", *lines)).encode()


def entry_of_length(length):
    head = entry("kind freeze")[:-1] + b"\nname "
    return head + b"x" * (length - len(head) - 1) + b"\n"


def part(content, salt=b"0123456789abcdef"):
    return salt + json.dumps(content).encode()


def digest_of(part):
    return "sha256:" + hashlib.sha256(part).hexdigest()


PARTS = [part({"params": {"id": number}}) for number in range(3)]
ENTRIES = [
    entry("kind record", f"id {number}", "status executed", "completed_at 2026-11-23T09:30:00.000000Z",
          f"params {digest_of(PARTS[number])}")
    for number in range(3)
]
POLICY = f"log {LOG.vkey}\nwitness w0 {WITNESSES[0].vkey}\nquorum w0\n".encode()


class TestCase(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.bundle = self.folder / "bundle"
        self.bundle.mkdir()

    def trust(self, vkeys=(LOG.vkey,), policy=None):
        path = None
        if policy is not None:
            path = self.folder / "policy"
            path.write_bytes(policy)
        return verify.make_trust(list(vkeys), path)

    def report(self, **arguments):
        earlier = arguments.pop("earlier", ())
        return verify.verify_bundle(self.bundle, self.trust(**arguments), earlier)

    def findings(self, **arguments):
        return self.report(**arguments).findings

    def codes(self, **arguments):
        return [code for code, _ in self.findings(**arguments)]

    def run_program(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = verify.main([str(argument) for argument in arguments])
            except SystemExit as exit_:
                code = exit_.code
        return code, out.getvalue(), err.getvalue()


# --- Known answers ------------------------------------------------------------------------------


class KnownAnswers(unittest.TestCase):
    RFC_8032 = [
        ("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
         "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
         "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
         "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"),
        ("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
         "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
         "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
         "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"),
        ("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
         "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
         "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
         "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"),
    ]

    def test_the_vectors_of_rfc_8032_verify(self):
        for seed, public, message, signature in self.RFC_8032:
            public, message, signature = map(bytes.fromhex, (public, message, signature))
            signer = Signer("name", bytes.fromhex(seed))
            self.assertEqual((signer.public, signer.sign(message)), (public, signature))
            self.assertTrue(verify.verify_ed25519(public, message, signature))
            self.assertFalse(verify.verify_ed25519(public, message + b"x", signature))
            self.assertFalse(verify.verify_ed25519(public, message, signature[:-1]))

    def test_an_s_that_is_not_reduced_is_refused(self):
        _, public, message, signature = self.RFC_8032[1]
        public, message, signature = map(bytes.fromhex, (public, message, signature))
        s = int.from_bytes(signature[32:], "little") + verify.L
        self.assertFalse(verify.verify_ed25519(public, message, signature[:32] + s.to_bytes(32, "little")))

    def test_encodings_of_points_that_are_not_canonical_are_refused(self):
        one = (1).to_bytes(32, "little")
        self.assertEqual(verify.decode_point(one), (0, 1, 1, 0))
        self.assertIsNone(verify.decode_point((verify.P + 1).to_bytes(32, "little")))
        self.assertIsNone(verify.decode_point((1 | 1 << 255).to_bytes(32, "little")))
        self.assertIsNone(verify.decode_point((2).to_bytes(32, "little")))

    def test_the_note_of_the_specification_verifies_with_its_key(self):
        key = verify.read_vkey("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k", 1)
        note = verify.open_note(
            "This is an example message.\n\n\u2014 example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAl"
            "TgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n".encode()
        )
        (name, id_, signature), = note.signatures
        self.assertEqual((name, id_, note.text), (key.name, key.id, b"This is an example message.\n"))
        self.assertTrue(verify.has_signed(key, note.text, signature))

    def test_roots_are_those_of_certificate_transparency(self):
        leaves = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
        roots = [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ]
        hashes = [verify.leaf_hash(bytes.fromhex(text)) for text in leaves]
        for size, root in enumerate(roots):
            self.assertEqual(verify.root_of_hashes(hashes[:size]).hex(), root)
            self.assertEqual(merkle_root(hashes[:size]).hex(), root)

    def test_every_inclusion_proof_of_small_trees_leads_to_the_root_and_no_longer_or_shorter_one_does(self):
        for size in range(1, 20):
            hashes = [leaf(bytes([number])) for number in range(size)]
            root = merkle_root(hashes)
            for index in range(size):
                proof = inclusion_proof(index, hashes)
                self.assertEqual(verify.root_from_inclusion_proof(index, size, hashes[index], proof), root)
                self.assertNotEqual(verify.root_from_inclusion_proof(index, size, hashes[index], proof + [root]), root)
                if proof:
                    self.assertNotEqual(verify.root_from_inclusion_proof(index, size, hashes[index], proof[:-1]), root)
        self.assertIsNone(verify.root_from_inclusion_proof(1, 1, hashes[0], []))
        self.assertIsNone(verify.root_from_inclusion_proof(0, 2, hashes[0], []))

    def test_paths_of_tiles_are_those_of_tlog_tiles(self):
        self.assertEqual(verify.tile_path(0, 1234067, 256), b"tile/0/x001/x234/067")
        self.assertEqual(verify.tile_path(verify.ENTRIES, 0, 5), b"tile/entries/000.p/5")
        files = [verify.tile_path(level, index, verify.tile_width(70_000, level, index))
                 for level, index in verify.required_tiles(70_000) if level != verify.ENTRIES]
        self.assertEqual(len(files), 273 + 1 + 1 + 1 + 1)
        self.assertEqual(files[273:], [b"tile/0/273.p/112", b"tile/1/000", b"tile/1/001.p/17", b"tile/2/000.p/1"])
        for path in (b"tile/0/x000/000", b"tile/0/00", b"tile/00/000", b"tile/0/274.p/1", b"tile/0/000.p/112",
                     b"tile/0/273.p/0112", b"tile/0/273", b"tile/8/000", b"tile/0/273.p/112\n"):
            self.assertIsNone(verify.tile_of_path(path, 70_000), path)


# --- Notes, keys and checkpoints ----------------------------------------------------------------


class Notes(TestCase):
    def test_a_note_that_breaks_a_rule_is_malformed(self):
        good = sign_checkpoint(0, verify.EMPTY_ROOT)
        verify.read_checkpoint(good)
        line = LOG.line(b"x\n")
        bad = [
            b"", b"\n", b"\n\n", good[:-1], good + b"\n", good + b"x\n", good.replace(b"\n\n", b"\n"),
            good.replace(b"\n\n", b"\n\n\n"), b"\n" + good, b"\xff" + good, b"\t" + good, good.replace(b"\n", b"\r\n"),
            good.replace("\u2014".encode(), b"-"), good + b"\n" + line, good + "\u2014 a+b AAAAAAA=\n".encode(),
            good + "\u2014 a\u2003b AAAAAAA=\n".encode(), good + "\u2014  AAAAAAA=\n".encode(),
            good + "\u2014 a AAAAAAA\n".encode(), good + "\u2014 a AAAAAA==\n".encode(),
            good + "\u2014 a AAAAAAB=\n".encode(),
            good + "\u2014 a AAAAAAA= \n".encode(), good + "\u2014 a\n".encode(), good + line[:-2] + b"\x00\n",
        ]
        for note in bad:
            with self.assertRaises(verify.MalformedError, msg=note):
                verify.read_checkpoint(note)

    def test_a_checkpoint_that_breaks_a_rule_is_malformed(self):
        root = base64.b64encode(verify.EMPTY_ROOT).decode()
        texts = [
            f"\n0\n{root}\n", f"o\n00\n{root}\n", f"o\n01\n{root}\n", f"o\n+1\n{root}\n", f"o\n-1\n{root}\n",
            f"o\n\n{root}\n", f"o\n1 \n{root}\n", f"o\n\u0661\n{root}\n", f"o\n{2**64}\n{root}\n",
            f"o\n{'9' * 10_000}\n{root}\n", f"o\n1\n{root[:-1]}\n", f"o\n1\n{root[4:]}\n", f"o\n1\n{root}\nextension\n",
            "o\n1\n", "o\n", f"o\n1\n{root[:-2]}V=\n",
        ]
        for text in texts:
            note = text.encode() + b"\n" + LOG.line(text.encode())
            with self.assertRaises(verify.MalformedError, msg=text):
                verify.read_checkpoint(note)

    def test_a_key_that_breaks_a_rule_is_malformed(self):
        name, id_, material = LOG.vkey.split("+", 2)
        no_point = b"\1" + (2).to_bytes(32, "little")
        bad = [
            "", "a", "a+b", f"{name}+{id_}", f"+{id_}+{material}", f"{name}+{id_.upper()}x+{material}",
            f"{name}+00000000+{material}", f"{name}+{id_[:7]}+{material}", f"{name}+{id_}+{material[:-1]}",
            f"{name}+{id_}+{material} ", f"other+{id_}+{material}", f"a b+{id_}+{material}", WITNESSES[0].vkey,
            f"\udcff+{id_}+{material}",
            f"{name}+{verify.key_id(name, 1, no_point[1:]).hex()}+{base64.b64encode(no_point).decode()}",
        ]
        for vkey in bad:
            with self.assertRaises(verify.VerificationError, msg=vkey):
                verify.make_trust([vkey])


    def test_two_keys_with_one_name_and_id_are_refused(self):
        keys = [verify.Key("a", b"1234", 1, bytes([number]) * 32) for number in range(2)]
        verify.Trust([keys[0], keys[0]], None)
        with self.assertRaises(verify.VerificationError):
            verify.Trust(keys, None)


class Signatures(TestCase):
    def sign(self, signers, **arguments):
        write(self.bundle / "checkpoint", sign_checkpoint(0, verify.EMPTY_ROOT, signers, **arguments))

    def test_another_key_is_unsigned(self):
        self.sign([LOG])
        self.assertEqual(self.codes(), [])
        self.assertEqual(self.findings(vkeys=[OTHER.vkey]), [("checkpoint_unsigned", "checkpoint")])
        self.assertEqual(self.codes(vkeys=[OTHER.vkey, LOG.vkey]), [])
        same_name = Signer(ORIGIN, b"another")
        self.assertEqual(self.codes(vkeys=[same_name.vkey]), ["checkpoint_unsigned"])

    def test_the_key_of_another_origin_does_not_count(self):
        self.sign([OTHER])
        self.assertEqual(self.codes(vkeys=[OTHER.vkey]), ["checkpoint_unsigned"])
        self.assertEqual(self.codes(vkeys=[LOG.vkey, OTHER.vkey]), ["checkpoint_unsigned"])

    def test_a_signature_that_does_not_verify_and_one_that_occurs_twice_are_invalid(self):
        self.sign([LOG])
        good = (self.bundle / "checkpoint").read_bytes()
        line = good[good.index("\u2014".encode()) :]
        wrong = signature_line(LOG.name, LOG.id + bytes(64))
        short = signature_line(LOG.name, LOG.id + bytes(9))
        for data, codes in [
            (good + line, ["signature_invalid"]),
            (good + wrong, ["signature_invalid"]),
            (good.replace(line, wrong), ["signature_invalid"]),
            (good.replace(line, short), ["signature_invalid"]),
            (good + signature_line(OTHER.name, OTHER.id + bytes(64)), []),
            (good + signature_line(OTHER.name, LOG.id + bytes(64)), []),
            (good + signature_line(LOG.name, OTHER.id + bytes(64)), []),
            (good + OTHER.line(b"x\n") * 300, []),
        ]:
            write(self.bundle / "checkpoint", data)
            self.assertEqual(self.codes(), codes)

    def test_a_checkpoint_with_extension_lines_or_more_than_65536_bytes_is_malformed(self):
        self.sign([LOG], extra="more\n")
        self.assertEqual(self.findings(), [("checkpoint_malformed", "checkpoint")])
        self.sign([LOG])
        path = self.bundle / "checkpoint"
        good = path.read_bytes()
        name = "n" * (65_536 - len(good) - len(signature_line("", bytes(5))))
        path.write_bytes(good + signature_line(name, bytes(5)))
        self.assertEqual((path.stat().st_size, self.codes()), (65_536, []))
        path.write_bytes(good + signature_line(name + "n", bytes(5)))
        self.assertEqual(self.codes(), ["checkpoint_malformed"])

    def test_a_policy_needs_its_log_and_its_quorum(self):
        self.sign([LOG, WITNESSES[0]])
        report = self.report(vkeys=[], policy=POLICY)
        self.assertEqual((report.findings, report.cosignatures), ([], [("w0.example", TIME)]))
        self.assertEqual(self.codes(policy=POLICY), [])
        self.assertEqual(self.codes(vkeys=[OTHER.vkey], policy=POLICY), ["checkpoint_unsigned"])
        self.assertEqual(self.codes(vkeys=[], policy=b"quorum none\n"), ["checkpoint_unsigned"])
        self.sign([LOG])
        self.assertEqual(self.findings(vkeys=[], policy=POLICY), [("policy_not_met", "checkpoint")])
        self.sign([WITNESSES[0]])
        self.assertEqual(self.codes(vkeys=[], policy=POLICY), ["checkpoint_unsigned"])

    def test_a_cosignature_is_bound_to_its_time(self):
        text = sign_checkpoint(0, verify.EMPTY_ROOT, []).partition(b"\n\n")[0] + b"\n"
        witness = WITNESSES[0]
        signature = witness.sign(b"cosignature/v1\ntime 7\n" + text)
        too_late = witness.sign(b"cosignature/v1\ntime %d\n" % 2**63 + text)
        for data, codes in [
            (struct.pack(">Q", 7) + signature, []),
            (struct.pack(">Q", 8) + signature, ["signature_invalid"]),
            (struct.pack(">Q", 2**63) + too_late, ["signature_invalid"]),
            (signature, ["signature_invalid"]),
        ]:
            lines = LOG.line(text) + signature_line(witness.name, witness.id + data)
            write(self.bundle / "checkpoint", text + b"\n" + lines)
            self.assertEqual(self.codes(policy=POLICY), codes)


class Policies(TestCase):
    NAMES = [f"witness {name} {signer.vkey}" for name, signer in zip("abcd", WITNESSES)]

    def met(self, lines, cosigners):
        policy = verify.read_policy("".join(line + "\n" for line in self.NAMES + lines).encode())
        return policy.is_met({name.encode() for name in cosigners})

    def test_groups_are_met_by_all_any_or_k_of_their_members(self):
        for lines, yes, no in [
            (["quorum none"], [""], []),
            (["quorum a"], ["a", "ab"], ["", "b"]),
            (["group g all a b", "quorum g"], ["ab", "abc"], ["", "a", "b", "cd"]),
            (["group g any a b", "quorum g"], ["a", "b"], ["", "c"]),
            (["group g 2 a b c", "quorum g"], ["ab", "bc", "abc"], ["a", "ad", ""]),
            (["group g any a b", "group h 2 c d", "group i all g h", "quorum i"], ["acd", "bcd"], ["ab", "cd", "ac"]),
            (["group g any a b", "group h all g c", "quorum g"], ["a"], ["c"]),
        ]:
            for cosigners in yes:
                self.assertTrue(self.met(lines, cosigners), (lines, cosigners))
            for cosigners in no:
                self.assertFalse(self.met(lines, cosigners), (lines, cosigners))

    def test_space_comments_urls_and_octets_outside_of_ascii_are_allowed(self):
        policy = verify.read_policy(
            b"# comment\n\n \t \n\t# \xff\nlog " + LOG.vkey.encode() + b" https://example.com/\n"
            b" witness\t\xff\t" + WITNESSES[0].vkey.encode() + b" url  \nquorum \xff\n"
        )
        self.assertEqual((len(policy.logs), policy.quorum), (1, b"\xff"))

    def test_each_mistake_is_refused(self):
        log, a, b = f"log {LOG.vkey}", self.NAMES[0], self.NAMES[1]
        renamed = Signer("another.example", b"witness 0", True)
        for lines in [
            [], [log], ["quorum"], ["quorum none none"], ["quorum none", "quorum none"], ["quorum a"],
            ["quorum a", a], ["Quorum none"], ["unknown", "quorum none"], ["log", "quorum none"],
            [log + " url more", "quorum none"], [log, log, "quorum none"], [a, a, "quorum none"],
            ["log nonsense", "quorum none"], [f"log {WITNESSES[0].vkey}", "quorum none"],
            [f"witness x {LOG.vkey}", "quorum none"], ["witness a", "quorum none"], [a + " url more", "quorum none"],
            [f"witness none {WITNESSES[0].vkey}", "quorum none"], [a, f"witness a {WITNESSES[1].vkey}", "quorum none"],
            [a, f"witness z {renamed.vkey}", "quorum none"], [a, "group a any a", "quorum none"],
            [a, "group none any a", "quorum none"], [a, "group g any", "quorum none"], [a, "group g", "quorum none"],
            [a, "group g any b", b, "quorum g"], [a, "group g any none", "quorum g"], [a, "group g any g", "quorum g"],
            [a, "group g any a a", "quorum g"], [a, "group g any a", "group h any a", "quorum g"],
            [a, "group g 0 a", "quorum g"], [a, "group g 2 a", "quorum g"], [a, "group g -1 a", "quorum g"],
            [a, "group g some a", "quorum g"], [a, f"group g {'9' * 5000} a", "quorum g"], ["quorum none\r"],
            ["# \x00", "quorum none"], ["# \x7f", "quorum none"],
        ]:
            with self.assertRaises(verify.MalformedError, msg=lines):
                verify.read_policy("".join(line + "\n" for line in lines).encode())
        with self.assertRaises(verify.MalformedError):
            verify.read_policy(b"quorum none")
        with self.assertRaises(verify.MalformedError):
            verify.read_policy(b"log \xff" + LOG.vkey.encode() + b"\nquorum none\n")


# --- Bundles ------------------------------------------------------------------------------------


class Bundles(TestCase):
    def setUp(self):
        super().setUp()
        self.root = write_bundle(self.bundle, ENTRIES, PARTS)

    def test_a_bundle_with_its_parts_is_valid_and_so_is_one_without_them(self):
        report = self.report()
        self.assertEqual(
            report.as_json(),
            {"verdict": "valid", "origin": ORIGIN, "size": 3, "root": base64.b64encode(self.root).decode(),
             "entries": 3, "parts": 3, "withheld": 0, "erased": 0, "findings": []},
        )
        for name in ("README.md", "verify.py", "policy", "vkey"):
            write(self.bundle / name, b"anything")
        next((self.bundle / "parts").iterdir()).unlink()
        report = self.report()
        self.assertEqual((report.verdict, report.parts, report.withheld), ("valid", 2, 1))
        shutil.rmtree(self.bundle / "parts")
        self.assertEqual(self.report().verdict, "valid")

    def test_every_change_of_one_bit_is_found(self):
        trust = self.trust()
        self.assertEqual(verify.verify_bundle(self.bundle, trust).findings, [])
        files = [path for path in self.bundle.rglob("*") if path.is_file()]
        self.assertEqual(len(files), 6)
        for path in files:
            data = path.read_bytes()
            for bit in range(8 * len(data)):
                changed = bytearray(data)
                changed[bit // 8] ^= 1 << bit % 8
                path.write_bytes(changed)
                self.assertTrue(verify.verify_bundle(self.bundle, trust).findings, (path, bit))
            path.write_bytes(data)

    def test_a_file_that_is_missing_is_named(self):
        for name in ["tile/0/000.p/3", "tile/entries/000.p/3"]:
            data = (self.bundle / name).read_bytes()
            (self.bundle / name).unlink()
            folder = name.rpartition("/")[0]
            self.assertEqual(self.findings(), [("file_unexpected", folder), ("file_missing", name)])
            write(self.bundle / name, data)
        (self.bundle / "checkpoint").unlink()
        self.assertEqual(self.findings(), [("checkpoint_malformed", "checkpoint")])

    def test_files_that_do_not_belong_are_named(self):
        for name in ("more", "tile/0/000.p/2", "tile/0/000", "tile/1/000.p/1", "tile/0/001.p/1", "tile/more",
                     "tile/entries/x000/000.p/3", "parts/more", "parts/" + "0" * 64, "parts/a/b", "tile/8/000.p/1"):
            self.bundle.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
            write(self.bundle / name, PARTS[0])
            found = self.findings()
            self.assertIn(("file_unexpected", name), found)
            self.assertEqual({place for _, place in found}, {name})
            (self.bundle / name).unlink()
            with contextlib.suppress(OSError):
                (self.bundle / name).parent.rmdir()
                (self.bundle / name).parent.parent.rmdir()
        self.assertEqual(self.findings(), [])
        for name in ("tile/empty", "parts/empty", "empty", "README.md"):
            (self.bundle / name).mkdir()
            self.assertEqual(self.findings(), [("file_unexpected", name)])
            (self.bundle / name).rmdir()

    def test_links_fifos_folders_and_names_that_are_not_utf8_are_named(self):
        tile = self.bundle / "tile/0/000.p/3"
        data = tile.read_bytes()
        write(self.folder / "elsewhere", data)
        for make in (lambda: tile.symlink_to(self.folder / "elsewhere"), lambda: tile.symlink_to(tile),
                     lambda: os.mkfifo(tile), tile.mkdir):
            tile.unlink()
            make()
            found = [(code, "tile/0/000.p/3") for code in ("file_unexpected", "file_missing")]
            self.assertEqual(self.findings(), found)
            tile.rmdir() if tile.is_dir() else tile.unlink()
            tile.write_bytes(data)
        os.symlink("/", self.bundle / "policy")
        os.mkfifo(os.fsencode(self.bundle) + b"/tile/\xff")
        self.assertEqual(self.findings(), [("file_unexpected", "policy"), ("file_unexpected", "tile/\ufffd")])
        checkpoint = self.bundle / "checkpoint"
        for make in (lambda: checkpoint.symlink_to(self.folder / "elsewhere"), lambda: os.mkfifo(checkpoint),
                     checkpoint.mkdir):
            checkpoint.unlink()
            make()
            self.assertEqual(self.findings(), [("checkpoint_malformed", "checkpoint")])
            if checkpoint.is_dir():
                checkpoint.rmdir()
                checkpoint.touch()

    def test_folders_that_are_links_or_files_are_not_followed(self):
        shutil.move(self.bundle / "tile", self.folder / "tile")
        for make in (lambda path: path.symlink_to(self.folder / "tile"), lambda path: path.write_bytes(b"")):
            make(self.bundle / "tile")
            found = self.findings()
            self.assertEqual(found[0], ("file_unexpected", "tile"))
            self.assertEqual([code for code, _ in found[1:3]], ["file_missing"] * 2)
            (self.bundle / "tile").unlink()

    def test_folders_of_any_depth_end_the_walk(self):
        # The path of the deepest one is longer than a path may be.
        folder = os.open(self.bundle / "tile", os.O_RDONLY)
        for _ in range(40):
            os.mkdir("d" * 200, dir_fd=folder)
            deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = deeper
        os.close(folder)
        self.assertEqual(self.codes(), ["file_unexpected"])

    def test_tiles_and_entries_of_another_length_are_malformed(self):
        for name, code in [("tile/0/000.p/3", "tile_malformed"), ("tile/entries/000.p/3", "entries_malformed")]:
            path = self.bundle / name
            data = path.read_bytes()
            for changed in (data[:-1], data + b"\0", b"", data[:32], data[:-33], data * 2):
                path.write_bytes(changed)
                found = self.findings()
                self.assertEqual(found[0], (code, name))
                self.assertEqual([code for code, _ in found[1:] if code != "file_unexpected"], [])
            with open(path, "wb") as file:
                file.truncate(1 << 40)  # a sparse file
            self.assertIn((code, name), self.findings())
            path.write_bytes(data)

    def change_entries(self, entries):
        data = b"".join(struct.pack(">H", len(entry)) + entry for entry in entries)
        write(self.bundle / "tile/entries/000.p/3", data)

    def test_entries_that_are_altered_reordered_or_inserted_are_named(self):
        self.change_entries([ENTRIES[0], entry("kind record", "id 9"), ENTRIES[2]])
        unnamed = "parts/" + hashlib.sha256(PARTS[1]).hexdigest()
        self.assertEqual(self.findings(), [("entry_altered", "1"), ("file_unexpected", unnamed)])
        self.change_entries([ENTRIES[0], ENTRIES[2], ENTRIES[1]])
        self.assertEqual(self.findings(), [("entry_altered", "1"), ("entry_altered", "2")])
        self.change_entries([ENTRIES[1]] + ENTRIES)
        self.assertEqual(self.findings(), [("entries_malformed", "tile/entries/000.p/3")])

    def test_a_dropped_tail_is_found_in_every_form(self):
        shorter = self.folder / "shorter"
        write_bundle(shorter, ENTRIES[:2], PARTS)
        shutil.copy(self.bundle / "checkpoint", shorter / "checkpoint")
        self.bundle = shorter
        self.assertEqual(self.codes()[:4], ["file_unexpected"] * 2 + ["file_missing"] * 2)
        for kind in ("0", "entries"):
            path = shorter / "tile" / kind / "000.p"
            (path / "2").rename(path / "3")
        self.assertIn("tile_malformed", self.codes())
        self.assertIn("entries_malformed", self.codes())

    def test_an_altered_tile_is_named_and_not_the_entries(self):
        path = self.bundle / "tile/0/000.p/3"
        path.write_bytes(bytes(32) + path.read_bytes()[32:])
        self.assertEqual(self.findings(), [("tile_altered", "tile/0/000.p/3")])

    def test_another_tree_with_its_own_tiles_does_not_have_the_root(self):
        write_bundle(self.bundle, ENTRIES, PARTS, root=bytes(32))
        self.assertEqual(self.findings(), [("root_mismatch", "checkpoint")])

    def test_a_root_that_is_not_computed_is_not_a_mismatch(self):
        write_bundle(self.bundle, ENTRIES, PARTS, root=bytes(32))
        (self.bundle / "tile/0/000.p/3").write_bytes(b"")
        self.assertEqual(self.codes(), ["tile_malformed"])

    def test_parts_that_are_altered_or_too_short_are_named(self):
        short = b"x" * 15
        entries = [entry("kind prune", f"details {digest_of(short)}")]
        shutil.rmtree(self.bundle)
        write_bundle(self.bundle, entries, [short])
        path = "parts/" + hashlib.sha256(short).hexdigest()
        self.assertEqual(self.findings(), [("part_altered", path)])
        write(self.bundle / path, b"x" * 100)
        self.assertEqual(self.findings(), [("part_altered", path)])
        write(self.bundle / path, b"")
        self.assertEqual(self.findings(), [("part_altered", path)])

    def test_an_empty_tree_has_no_tiles(self):
        shutil.rmtree(self.bundle)
        self.bundle.mkdir()
        write_bundle(self.bundle, [])
        self.assertEqual(self.report().as_json()["findings"], [])
        write(self.bundle / "tile/0/000.p/1", leaf(b""))
        self.assertEqual(self.codes(), ["file_unexpected"])
        shutil.rmtree(self.bundle / "tile")
        write(self.bundle / "checkpoint", sign_checkpoint(0, bytes(32)))
        self.assertEqual(self.codes(), ["root_mismatch"])

    def test_a_size_that_no_machine_can_hold_ends_with_as_many_findings_as_are_listed(self):
        write(self.bundle / "checkpoint", sign_checkpoint(2**63 - 1, self.root))
        codes = self.codes()
        self.assertEqual(codes.count("file_missing"), verify.MAX_FINDINGS_OF_A_CODE)
        self.assertNotIn("root_mismatch", codes)
        write(self.bundle / "checkpoint", sign_checkpoint(2**63, self.root))
        self.assertEqual(self.codes(), ["checkpoint_malformed"])

    def test_a_folder_that_is_not_there_or_cannot_be_read_is_an_error(self):
        for path in (self.folder / "none", self.bundle / "checkpoint", "a\0b"):
            with self.assertRaises(verify.VerificationError):
                verify.verify_bundle(path, self.trust())
        if os.geteuid() != 0:
            (self.bundle / "checkpoint").chmod(0)
            with self.assertRaises(verify.VerificationError):
                self.report()


class Sizes(TestCase):
    def test_bundles_of_all_shapes_are_valid(self):
        for size in (0, 1, 2, 255, 256, 257, 511, 512, 513):
            shutil.rmtree(self.bundle)
            self.bundle.mkdir()
            root = write_bundle(self.bundle, [entry(f"kind k{number}") for number in range(size)])
            report = self.report()
            self.assertEqual((report.findings, report.size, report.entries, report.root), ([], size, size, root))

    def test_a_tree_with_three_levels_is_valid_and_each_tile_of_it_is_verified(self):
        root = write_bundle(self.bundle, [entry("kind k", f"id {number}") for number in range(65_537)])
        earlier = []
        for size in (256, 65_536):
            hashes = [leaf(entry("kind k", f"id {number}")) for number in range(size)]
            earlier.append(self.folder / f"checkpoint-{size}")
            write(earlier[-1], sign_checkpoint(size, merkle_root(hashes)))
        report = self.report(earlier=earlier)
        self.assertEqual((report.findings, report.entries, report.root), ([], 65_537, root))
        for name in ("tile/1/000", "tile/2/000.p/1"):
            path = self.bundle / name
            data = path.read_bytes()
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        path = self.bundle / "tile/0/200"
        path.write_bytes(path.read_bytes()[32:] + bytes(32))
        found = [("tile_altered", name) for name in ("tile/1/000", "tile/2/000.p/1", "tile/0/200")]
        self.assertEqual(self.findings(), found)
        os.unlink(self.bundle / "tile/entries/007")
        self.assertEqual(self.codes(), ["file_missing", "tile_altered", "tile_altered"] + ["entry_altered"] * 256)

    def test_long_entries_are_read_and_named(self):
        lengths = [8_192, 8_193, 65_535]
        write_bundle(self.bundle, [entry_of_length(length) for length in lengths])
        self.assertEqual([len(entry_of_length(length)) for length in lengths], lengths)
        self.assertEqual(self.findings(), [("entry_too_long", "1"), ("entry_too_long", "2")])


class Entries(TestCase):
    def malformed(self, data):
        return "entry_malformed" in verify.verify_entry(data)[0]

    def test_entries_of_all_kinds_are_well_formed(self):
        digest = digest_of(PARTS[0])
        for kind, keys in verify.KEYS.items():
            lines = [f"kind {kind}"]
            for key in keys.split():
                value = digest if key in verify.PART_KEYS else "2026-11-23T09:30:00.000000Z"
                lines.append(f"{key} {value}")
            self.assertFalse(self.malformed(entry(*lines)), lines)

    def test_kinds_and_keys_that_are_not_known_are_accepted(self):
        for lines in (["kind unknown", "z 1", "a 2"], ["kind record", "zzz x", "id 1", "yyy x", "rows_affected 3"],
                      ["kind key", "at 2026-11-23T09:30:00.000000Z", "action a  b ", "vkey \u00e9\u2028%25%0A%C2%85"],
                      ["kind unknown", "at noon"]):
            self.assertFalse(self.malformed(entry(*lines)), lines)

    def test_each_rule_is_verified(self):
        good = entry("kind key", "id 1")
        for data in [
            b"", b"countersign-entry/v1", b"countersign-entry/v1\n", good[:-1], good + b"\n", b"\n" + good,
            good.replace(b"v1", b"v2"), good.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + good,
            good.replace(b"1\n", b"\xff\n"),
            entry("id 1", "kind key"), entry("kind"), entry("kind "), entry("kind key", "id"), entry("kind key", "id "),
            entry("kind key", "", "id 1"), entry("kind key", " id 1"), entry("kind key", "Id 1"),
            entry("kind key", "1d 1"),
            entry("kind key", "i-d 1"), entry("kind key", "id\t1"), entry("kind key", "id 1", "id 2"),
            entry("kind key", "new 1", "new 2"), entry("kind key", "kind key"), entry("kind key", "login a", "id 1"),
            entry("kind key", "id a\tb"), entry("kind key", "id a\x7fb"), entry("kind key", "id a\x85b"),
            entry("kind key", "id %"), entry("kind key", "id %2"), entry("kind key", "id %41"),
            entry("kind key", "id %0a"),
            entry("kind key", "id %C2%A0"), entry("kind key", "id %C2"), entry("kind key", "id %85"),
            entry("kind key", "at 2026-11-23T09:30:00Z"), entry("kind key", "at 2026-11-23T09:30:00.000000+00:00"),
            entry("kind key", "at 2026-13-23T09:30:00.000000Z"), entry("kind key", "at 2026-11-23 09:30:00.000000Z"),
            entry("kind record", "params sha256:0"), entry("kind record", "params " + digest_of(b"").upper()),
            entry("kind unknown", "details text"), b"countersign-entry/v1\nkind key\nid \xed\xa0\x80\n",
        ]:
            self.assertTrue(self.malformed(data), data)

    def test_hostile_entries_end_in_time(self):
        for body in (b"%", b"%25", b"a", b"a%25", b"a\n", b"a b\n", b"\n"):
            self.assertTrue(self.malformed((b"countersign-entry/v1\nkind " + body * 65_535)[:65_534] + b"\0"))

    def test_a_malformed_entry_of_a_bundle_is_named(self):
        write_bundle(self.bundle, [entry("kind key"), b"", entry_of_length(9_000)[:-1]])
        self.assertEqual(self.findings(), [("entry_malformed", "1"), ("entry_too_long", "2"), ("entry_malformed", "2")])


class EarlierCheckpoints(TestCase):
    def setUp(self):
        super().setUp()
        self.entries = [entry("kind k", f"id {number}") for number in range(300)]
        write_bundle(self.bundle, self.entries)
        self.path = self.folder / "earlier"

    def earlier(self, size, root=None, **arguments):
        root = root or merkle_root([leaf(entry) for entry in self.entries[:size]])
        write(self.path, sign_checkpoint(size, root, **arguments))
        return self.codes(earlier=[self.path])

    def test_checkpoints_of_each_earlier_size_are_consistent(self):
        for size in (0, 1, 2, 3, 100, 255, 256, 257, 299, 300):
            self.assertEqual(self.earlier(size), [])

    def test_another_root_or_origin_is_inconsistent(self):
        for size in (0, 1, 100, 256, 299, 300):
            self.assertEqual(self.earlier(size, bytes(32)), ["checkpoint_inconsistent"])
        self.assertEqual(self.earlier(1, origin="x"), ["checkpoint_unsigned"])
        self.assertEqual(self.findings(earlier=[self.path]), [("checkpoint_unsigned", str(self.path))])

    def test_a_larger_size_is_newer(self):
        self.assertEqual(self.earlier(301), ["checkpoint_newer"])
        self.assertEqual(self.earlier(2**63 - 1), ["checkpoint_newer"])

    def test_signatures_and_the_form_are_verified(self):
        self.assertEqual(self.earlier(1, signers=[OTHER]), ["checkpoint_unsigned"])
        write(self.path, b"nonsense")
        self.assertEqual(self.findings(earlier=[self.path]), [("checkpoint_malformed", str(self.path))])
        for path in (self.folder / "none", self.folder):
            with self.assertRaises(verify.VerificationError):
                self.report(earlier=[path])

    def test_the_tree_is_that_of_the_entries_as_far_as_they_can_be_read(self):
        path = self.bundle / "tile/entries/000"
        path.write_bytes(path.read_bytes().replace(b"id 7\n", b"id 8\n"))
        self.assertEqual(self.earlier(100), ["entry_altered", "checkpoint_inconsistent"])
        path.unlink()
        self.assertEqual(self.earlier(100, bytes(32)), ["file_missing"])


class Proofs(TestCase):
    def setUp(self):
        super().setUp()
        self.hashes = [leaf(entry) for entry in ENTRIES]
        self.checkpoint = sign_checkpoint(3, merkle_root(self.hashes))

    def proof(self, index=1, entry=ENTRIES[1], hashes=None, checkpoint=None):
        hashes = inclusion_proof(index, self.hashes) if hashes is None else hashes
        lines = ["c2sp.org/tlog-proof@v1", "extra " + base64.b64encode(entry).decode(), f"index {index}"]
        lines += [base64.b64encode(hash_).decode() for hash_ in hashes]
        return "".join(line + "\n" for line in lines).encode() + b"\n" + (checkpoint or self.checkpoint)

    def verify(self, data):
        path = self.folder / "proof"
        write(path, data)
        return [code for code, _ in verify.verify_proof(path, self.trust()).findings]

    def test_the_proof_of_each_entry_is_valid(self):
        for index in range(3):
            self.assertEqual(self.verify(self.proof(index, ENTRIES[index])), [])

    def test_a_proof_of_something_else_is_invalid(self):
        self.assertEqual(self.verify(self.proof(0)), ["proof_invalid"])
        self.assertEqual(self.verify(self.proof(hashes=[])), ["proof_invalid"])
        self.assertEqual(self.verify(self.proof(index=2**63 - 1, hashes=[bytes(32)] * 63)), ["proof_invalid"])
        self.assertEqual(self.verify(self.proof(hashes=[bytes(32)] * 64)), ["proof_malformed"])
        self.assertEqual(self.verify(self.proof(checkpoint=sign_checkpoint(0, verify.EMPTY_ROOT))), ["proof_invalid"])

    def test_the_entry_and_the_signatures_are_verified(self):
        odd = b"odd"
        checkpoint = sign_checkpoint(1, leaf(odd), [OTHER])
        self.assertEqual(self.verify(self.proof(0, odd, [], checkpoint)), ["checkpoint_unsigned"])
        checkpoint = sign_checkpoint(1, leaf(odd))
        self.assertEqual(self.verify(self.proof(0, odd, [], checkpoint)), ["entry_malformed"])
        long = entry_of_length(65_535)
        self.assertEqual(self.verify(self.proof(0, long, [], sign_checkpoint(1, leaf(long)))), ["entry_too_long"])

    def test_a_proof_that_breaks_a_rule_is_malformed(self):
        good = self.proof()
        lines = good.split(b"\n")
        for data in [
            b"", b"\n\n", good[:-1], good.replace(b"@v1", b"@v2"), good.replace(b"\n", b"\r\n"), b"\n" + good,
            b"\n".join(lines[:1] + lines[2:]), b"\n".join(lines[:2] + lines[3:]), good.replace(b"index 1", b"index 01"),
            good.replace(b"index 1", b"index -1"), good.replace(b"index 1", b"index " + b"1" * 5000),
            good.replace(b"extra ", b"extra  "), good.replace(lines[3], lines[3][:-1]), good.replace(lines[3], b"AAAA"),
            good.replace(lines[3], b"\xff"), good.replace(b"\n\n", b"\n", 1), good + b"\n" * 300_000,
        ]:
            self.assertEqual(self.verify(data), ["proof_malformed"], data[:300])

    def test_every_change_of_one_bit_is_found(self):
        good = self.proof()
        for bit in range(8 * good.index(b"\n\n")):
            changed = bytearray(good)
            changed[bit // 8] ^= 1 << bit % 8
            self.assertTrue(self.verify(bytes(changed)), bit)


class CommandLine(TestCase):
    def setUp(self):
        super().setUp()
        write_bundle(self.bundle, ENTRIES, PARTS, [LOG, WITNESSES[0]])

    def test_the_exit_code_is_the_verdict(self):
        code, out, err = self.run_program(self.bundle, "--vkey", LOG.vkey)
        self.assertEqual((code, out.splitlines()[0], err), (0, "valid", ""))
        self.assertIn("3 entries, 3 parts present, 0 withheld", out)
        code, out, err = self.run_program(self.bundle, "--vkey", OTHER.vkey)
        self.assertEqual((code, err), (1, ""))
        self.assertIn("(checkpoint_unsigned: checkpoint)", out)
        code, out, _ = self.run_program(self.bundle, "--vkey", OTHER.vkey, "--json")
        self.assertEqual(json.loads(out)["findings"], [{"code": "checkpoint_unsigned", "place": "checkpoint"}])
        self.assertEqual((code, json.loads(out)["verdict"]), (1, "invalid"))

    def test_the_times_of_cosignatures_are_printed(self):
        policy = self.folder / "policy"
        write(policy, POLICY)
        code, out, _ = self.run_program(self.bundle, "--policy", policy)
        self.assertEqual((code, out.splitlines()[-1]), (0, "cosigned by w0.example at 2025-10-09T08:53:20Z"))
        self.assertEqual(verify.time_text(2**63 - 1), f"{2**63 - 1} seconds after 1970")

    def test_without_a_key_the_message_says_what_to_give(self):
        code, out, err = self.run_program(self.bundle)
        self.assertEqual((code, out), (2, ""))
        self.assertIn("--vkey", err)
        self.assertIn("proves nothing", err)

    def test_what_cannot_run_has_exit_code_2_and_no_traceback(self):
        vkey = ["--vkey", LOG.vkey]
        os.mkfifo(self.folder / "fifo")
        for arguments in [
            [], vkey, [self.bundle, "--proof", "x", *vkey], ["--proof", "x", "--checkpoint", "x", *vkey],
            ["--unknown", *vkey], [self.folder / "none", *vkey], [self.bundle, "--vkey", "x\x1b[31m"],
            [self.bundle, *vkey, "--policy", self.folder / "fifo"], [self.bundle, *vkey, "--policy", self.folder],
            [self.bundle, *vkey, "--policy", self.bundle / "checkpoint"],
            [self.bundle, *vkey, "--checkpoint", "/dev/zero"],
            ["--proof", self.folder / "fifo", *vkey], ["--proof", self.folder, *vkey],
        ]:
            code, out, err = self.run_program(*arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertTrue(err)
            self.assertNotIn("\x1b", err)

    def test_names_of_files_do_not_act_on_the_terminal(self):
        write(self.bundle / "\x1b[31m\n", b"")
        code, out, _ = self.run_program(self.bundle, "--vkey", LOG.vkey)
        self.assertEqual(code, 1)
        self.assertIn("\\x1b[31m\\n", out)
        self.assertNotIn("\x1b", out)

    def test_each_code_has_a_sentence(self):
        source = pathlib.Path(verify.__file__).read_text()
        page = (pathlib.Path(verify.__file__).parent / "reference/log-format.md").read_text()
        for code in verify.SENTENCES:
            self.assertGreater(source.count(f'"{code}"'), 1)
            self.assertIn(f"`{code}`", page)


class Mutations(TestCase):
    """The programs that an acceptance test compares the verifiers with."""

    # What a verifier has no reason to object to.
    HARMLESS = ("parts removed", "removed", "added", "unknown", "moved")

    def test_mutated_copies_are_the_same_each_time_and_leave_the_bundle_as_it_is(self):
        write_bundle(self.bundle, ENTRIES, PARTS, [LOG, WITNESSES[0]])
        write(self.folder / "policy", POLICY)
        before = {path: path.read_bytes() for path in self.bundle.rglob("*") if path.is_file()}
        verdicts = []
        for name in ("first", "second"):
            (self.folder / name).mkdir()
            for number in range(300):
                folder = self.folder / name / str(number)
                mutations = mutate_bundle.mutate(self.bundle, folder, random.Random(f"seed/{number}"))
                arguments = {"dir": str(folder), "vkey": [LOG.vkey], "policy": str(self.folder / "policy")}
                verdicts.append((mutations, compare_verifiers.verdict(arguments)))
        self.assertEqual(verdicts[:300], verdicts[300:])
        self.assertEqual({path: path.read_bytes() for path in self.bundle.rglob("*") if path.is_file()}, before)
        for mutations, verdict in verdicts[:300]:
            self.assertTrue(mutations)
            if verdict["verdict"] != "invalid":
                self.assertEqual(verdict["verdict"], "valid")
                self.assertTrue(mutations[-1].endswith(self.HARMLESS), mutations)

    def test_what_cannot_be_verified_is_an_error(self):
        keys = {"vkey": [LOG.vkey]}
        for arguments in ({"dir": str(self.bundle)}, {"dir": "a\0b", **keys}, {"proof": "/", **keys}):
            self.assertEqual(compare_verifiers.verdict(arguments)["verdict"], "error")


if __name__ == "__main__":
    unittest.main()
