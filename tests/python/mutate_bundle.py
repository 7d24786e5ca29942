"""Make mutated copies of a bundle.

    mutate_bundle.py BUNDLE TARGET COUNT [--seed SEED]

The copies are the folders TARGET/00000, TARGET/00001 and so on. Files that were not changed are hard links, so BUNDLE
and TARGET have to be on one file system. The same arguments make the same copies. For each copy, one line is printed:
{"dir": PATH, "mutations": [..]}. A copy has one mutation, or sometimes two. A few of them change nothing that a
verifier has to find, such as another order of the signatures.
"""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import struct


class Copy:
    """A copy of the bundle that is being mutated."""

    def __init__(self, folder: pathlib.Path, rng: random.Random):
        self.folder = folder
        self.rng = rng

    def files(self, under: str = "") -> list:
        """The paths of regular files, from the folder of the copy."""
        found = []
        for top, folders, names in os.walk(self.folder):
            for name in names:
                path = pathlib.Path(top, name)
                if path.is_file() and not path.is_symlink():
                    found.append(path.relative_to(self.folder).as_posix())
        return sorted(path for path in found if path.startswith(under))

    def any_file(self, under: str = ""):
        files = self.files(under)
        if not files:
            return None
        # Every kind of file is as likely as any other, however many there are of it.
        kinds = sorted({kind_of(path) for path in files})
        kind = self.rng.choice(kinds)
        return self.rng.choice([path for path in files if kind_of(path) == kind])

    def read(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        """Write a file of its own: the one that other copies share stays as it is."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink() or target.exists():
            target.unlink()
        target.write_bytes(data)

    def rename(self, old: str, new: str) -> bool:
        if old == new or (self.folder / new).exists():
            return False
        (self.folder / new).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / old).rename(self.folder / new)
        return True


def kind_of(path: str) -> str:
    pieces = path.split("/")
    return "/".join(pieces[:2]) if pieces[0] == "tile" else pieces[0]


# Each mutation returns a description, or None if it cannot be done with this bundle.


def flip_bit(copy):
    path = copy.any_file()
    data = bytearray(copy.read(path)) if path else b""
    if not data:
        return None
    bit = copy.rng.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    copy.write(path, bytes(data))
    return f"bit {bit} of {path}"


def truncate(copy):
    path = copy.any_file()
    data = copy.read(path) if path else b""
    if not data:
        return None
    length = copy.rng.choice([0, len(data) - 1, copy.rng.randrange(len(data)), max(0, len(data) - 32)])
    copy.write(path, data[:length])
    return f"{path} cut to {length} bytes"


def append(copy):
    path = copy.any_file()
    if not path:
        return None
    data = copy.rng.choice([b"\0", b"\n", b" ", b"\0\0", bytes(32), copy.rng.randbytes(copy.rng.randrange(1, 40))])
    copy.write(path, copy.read(path) + data)
    return f"{len(data)} bytes behind {path}"


def swap_files(copy):
    first = copy.any_file()
    second = copy.any_file(kind_of(first) if first and copy.rng.random() < 0.7 else "")
    if not first or first == second or copy.read(first) == copy.read(second):
        return None
    data = copy.read(first)
    copy.write(first, copy.read(second))
    copy.write(second, data)
    return f"{first} and {second} swapped"


def remove_file(copy):
    path = copy.any_file()
    if not path:
        return None
    (copy.folder / path).unlink()
    return f"{path} removed"


def remove_folder(copy):
    folders = sorted({str(pathlib.PurePosixPath(path).parent) for path in copy.files()} - {"."})
    if not folders:
        return None
    path = copy.rng.choice(folders)
    shutil.rmtree(copy.folder / path)
    return f"folder {path} removed"


def add_file(copy):
    index = copy.rng.randrange(1100)
    number = f"x{index // 1000:03}/{index % 1000:03}" if index >= 1000 else f"{index:03}"
    width = copy.rng.randrange(257)
    path = copy.rng.choice([
        "more", "README", "checkpoint.old", "tile/more", "parts/more", "README.md", "policy", f"tile/0/{number}",
        f"tile/entries/{number}", f"tile/0/{number}.p/{width}", f"tile/entries/{number}.p/{width}",
        f"tile/{copy.rng.randrange(66)}/000.p/{width}", "tile/0/x000/000", "parts/" + copy.rng.randbytes(32).hex(),
        "parts/" + copy.rng.randbytes(32).hex().upper(), "tile/0/000.p/0", "tile/0/000.p/01",
        "tile/00/000", "tile/-1/000", "parts/a/b",
    ])
    if os.path.lexists(copy.folder / path):
        return None
    data = copy.rng.randbytes(copy.rng.choice([0, 15, 16, 32, 100]))
    if path.startswith("parts/") and copy.rng.random() < 0.5:
        path = "parts/" + hashlib.sha256(data).hexdigest()
    try:
        copy.write(path, data)
    except (NotADirectoryError, FileExistsError):
        return None
    return f"{path} added"


def copy_file(copy):
    path = copy.any_file("tile/")
    if not path:
        return None
    target = renamed_tile(copy, path)
    if target == path or os.path.lexists(copy.folder / target):
        return None
    try:
        copy.write(target, copy.read(path))
    except (NotADirectoryError, FileExistsError):
        return None
    return f"{path} copied to {target}"


def renamed_tile(copy, path: str) -> str:
    match = re.fullmatch(r"(tile/[^/]+/(?:x[0-9]{3}/)*)([0-9]{3})(?:\.p/([0-9]+))?", path)
    if not match:
        return path + ".p"
    folder, number, width = match.groups()
    width = int(width or 256)
    number = copy.rng.choice([number, number, number, f"{(int(number) + 1) % 1000:03}"])
    other = copy.rng.choice([width, max(width - 1, 1), width + 1, 1, 255, 256, 0])
    name = number if other == 256 else f"{number}.p/{other}"
    return copy.rng.choice([folder + name, folder + name, folder + name, folder + "x000/" + name, folder + name + "0"])


def rename_tile(copy):
    path = copy.any_file("tile/")
    if not path:
        return None
    target = renamed_tile(copy, path)
    try:
        return f"{path} renamed to {target}" if copy.rename(path, target) else None
    except (NotADirectoryError, FileExistsError):
        return None


def rename_part(copy):
    path = copy.any_file("parts/")
    if not path:
        return None
    name = path[len("parts/") :]
    other = copy.rng.randbytes(32).hex()
    target = "parts/" + copy.rng.choice([name.upper(), name[:-1], name + "0", other, "sha256:" + name])
    return f"{path} renamed to {target}" if copy.rename(path, target) else None


def replace_with_special(copy):
    path = copy.any_file()
    if not path:
        return None
    data = copy.read(path)
    what = copy.rng.choice(["link", "link to itself", "link to nothing", "folder", "folder with a file", "FIFO"])
    target = copy.folder / path
    target.unlink()
    if what == "link":
        # The content is right, and the file is still a link.
        content = copy.folder.parent / (copy.folder.name + ".linked")
        content.write_bytes(data)
        target.symlink_to(os.path.relpath(content, target.parent))
    elif what == "link to itself":
        target.symlink_to(target.name)
    elif what == "link to nothing":
        target.symlink_to("nothing")
    elif what == "FIFO":
        os.mkfifo(target)
    else:
        target.mkdir()
        if what == "folder with a file":
            (target / "file").write_bytes(data)
    return f"{path} is a {what}"


def add_special(copy):
    name = copy.rng.choice(["", "tile/", "tile/0/", "parts/"]) + copy.rng.choice(["zzz", "README.md", "policy", "vkey"])
    target = copy.folder / name
    if os.path.lexists(target) or not target.parent.is_dir():
        return None
    what = copy.rng.choice(["empty folder", "link", "FIFO"])
    {"empty folder": target.mkdir, "link": lambda: target.symlink_to("/"), "FIFO": lambda: os.mkfifo(target)}[what]()
    return f"{name} added, a {what}"


def link_folder(copy):
    name = copy.rng.choice(["tile", "parts", "tile/0", "tile/entries"])
    folder = copy.folder / name
    if not folder.is_dir() or folder.is_symlink():
        return None
    content = copy.folder.parent / (copy.folder.name + ".folder")
    folder.rename(content)
    folder.symlink_to(os.path.relpath(content, folder.parent))
    return f"{name} is a link to a folder"


def read_entries(data: bytes) -> list:
    entries, at = [], 0
    while at + 2 <= len(data):
        length = struct.unpack_from(">H", data, at)[0]
        entries.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    return entries


def write_entries(copy, path: str, entries: list) -> None:
    copy.write(path, b"".join(struct.pack(">H", len(entry)) + entry for entry in entries))


def change_entries(copy):
    path = copy.any_file("tile/entries/")
    entries = read_entries(copy.read(path)) if path else []
    if not entries:
        return None
    before, rng = list(entries), copy.rng
    at = rng.randrange(len(entries))
    what = rng.choice([
        "moved", "doubled", "dropped", "replaced", "emptied", "merged", "line dropped", "boundary moved",
    ])
    if what == "moved":
        entries.insert(rng.randrange(len(entries)), entries.pop(at))
    elif what == "doubled":
        entries.insert(at, entries[at])
    elif what == "dropped":
        del entries[at]
    elif what == "replaced":
        entries[at] = rng.choice(entries)
    elif what == "emptied":
        entries[at] = b""
    elif what == "line dropped":
        lines = entries[at].splitlines(keepends=True)
        del lines[rng.randrange(len(lines)) : 1 + rng.randrange(len(lines))]
        entries[at] = b"".join(lines)
    elif at + 1 < len(entries):
        both = entries[at] + entries[at + 1]
        cut = len(both) if what == "merged" else rng.randrange(len(both) + 1)
        entries[at : at + 2] = [both[:cut], both[cut:]]
    if entries == before or any(len(entry) > 65_535 for entry in entries):
        return None
    write_entries(copy, path, entries)
    return f"{path}: entry {at} {what}"


def change_length_prefix(copy):
    path = copy.any_file("tile/entries/")
    data = bytearray(copy.read(path)) if path else b""
    if len(data) < 2:
        return None
    at, starts = 0, []
    while at + 2 <= len(data):
        starts.append(at)
        at += 2 + struct.unpack_from(">H", data, at)[0]
    at = copy.rng.choice(starts)
    length = struct.unpack_from(">H", data, at)[0]
    other = copy.rng.choice([0, 65_535, (length + 1) % 65_536, (length - 1) % 65_536, copy.rng.randrange(65_536)])
    if other == length:
        return None
    struct.pack_into(">H", data, at, other)
    copy.write(path, bytes(data))
    return f"{path}: length {length} at {at} is {other}"


def change_entry_and_tile(copy):
    """An entry with its right hash in the tile of level 0: only the tree above says that it was altered."""
    path = copy.any_file("tile/entries/")
    tile = path and path.replace("entries", "0", 1)
    entries = read_entries(copy.read(path)) if path else []
    if not entries or not (copy.folder / tile).is_file():
        return None
    at = copy.rng.randrange(len(entries))
    entries[at] = entries[at][:-1] + b"x\n" if len(entries[at]) < 65_000 else entries[at][:-2] + b"\n"
    hashes = bytearray(copy.read(tile))
    hashes[32 * at : 32 * at + 32] = hashlib.sha256(b"\0" + entries[at]).digest()
    write_entries(copy, path, entries)
    copy.write(tile, bytes(hashes))
    return f"entry {at} of {path} altered together with its tile"


def swap_hashes(copy):
    path = copy.any_file("tile/")
    data = copy.read(path) if path and not path.startswith("tile/entries/") else b""
    if len(data) < 64:
        return None
    first, second = (32 * copy.rng.randrange(len(data) // 32) for _ in range(2))
    changed = bytearray(data)
    changed[first : first + 32], changed[second : second + 32] = data[second : second + 32], data[first : first + 32]
    if changed == data:
        return None
    copy.write(path, bytes(changed))
    return f"{path}: hashes at {first} and {second} swapped"


def change_checkpoint(copy):
    if not copy.files("checkpoint"):
        return None
    data = copy.read("checkpoint")
    text, separator, signed = data.rpartition(b"\n\n")
    lines = text.split(b"\n")
    if not separator or len(lines) < 3:
        return None
    rng = copy.rng
    size = int(lines[1]) if re.fullmatch(b"[0-9]{1,20}", lines[1]) else 0
    what, change = rng.choice([
        ("origin", [lines[0] + b"x"]), ("origin", [b""]), ("origin", [b"\xff"]), ("origin", [lines[0] + b"\t"]),
        *(("size", [lines[0], other]) for other in [
            b"%d" % (size + 1), b"%d" % max(size - 1, 0), b"0%d" % size, b"+%d" % size, b"-%d" % size, b"", b"0",
            b"%d" % 2**63, b"%d" % (2**64 - 1), b"%d" % 2**64, b"9" * 5000, b" %d" % size, b"%d.0" % size]),
        ("root", lines[:2] + [base64.b64encode(bytes(32))]), ("root", lines[:2] + [lines[2][:-1]]),
        ("root", lines[:2] + [lines[2] + b"AAAA"]), ("root", lines[:2] + [base64.b64encode(bytes(31))]),
        ("root", lines[:2] + [lines[2].replace(b"+", b"-").replace(b"/", b"_") + b"\r"]),
        ("extension", lines + [b"extension"]), ("empty line", lines + [b""]), ("empty line", [b""] + lines),
    ])
    if len(change) < 3:
        change = change + lines[len(change) :]
    changed = b"\n".join(change) + separator + signed
    if changed == data:
        return None
    copy.write("checkpoint", changed)
    return f"checkpoint: other {what}"


def change_signatures(copy):
    if not copy.files("checkpoint"):
        return None
    data = copy.read("checkpoint")
    text, separator, signed = data.rpartition(b"\n\n")
    lines = signed.splitlines(keepends=True)
    if not separator or not lines:
        return None
    rng = copy.rng
    at = rng.randrange(len(lines))
    name, _, encoded = lines[at].rstrip(b"\n").rpartition(b" ")
    try:
        signature = bytearray(base64.b64decode(encoded, validate=True))
    except ValueError:
        return None
    what = rng.choice([
        "doubled", "dropped", "moved", "renamed", "other id", "flipped", "S + L", "cut", "unknown", "spaces", "hyphen",
        "unpadded",
    ])
    if what == "doubled":
        lines.insert(rng.randrange(len(lines) + 1), lines[at])
    elif what == "dropped":
        del lines[at]
    elif what == "moved":
        lines.insert(rng.randrange(len(lines)), lines.pop(at))
    elif what == "renamed":
        lines[at] = name + b"x " + encoded + b"\n"
    elif what == "unknown":
        lines.insert(at, "\u2014 unknown.example ".encode() + base64.b64encode(rng.randbytes(68)) + b"\n")
    elif what == "spaces":
        lines[at] = name + b"  " + encoded + b"\n"
    elif what == "hyphen":
        lines[at] = lines[at].replace("\u2014".encode(), b"-")
    elif what == "unpadded":
        lines[at] = lines[at].replace(b"=", b"")
    else:
        if what == "other id":
            signature[rng.randrange(min(4, len(signature)))] ^= 1 << rng.randrange(8)
        elif what == "flipped":
            signature[rng.randrange(len(signature))] ^= 1 << rng.randrange(8)
        elif what == "cut":
            del signature[rng.randrange(len(signature)) :]
        else:
            order = 2**252 + 27742317777372353535851937790883648493
            s = int.from_bytes(signature[-32:], "little") + order
            if s >= 2**256:
                return None
            signature[-32:] = s.to_bytes(32, "little")
        lines[at] = name + b" " + base64.b64encode(bytes(signature)) + b"\n"
    changed = text + separator + b"".join(lines)
    if changed == data:
        return None
    copy.write("checkpoint", changed)
    return f"checkpoint: signature {at} {what}"


MUTATIONS = [
    flip_bit, flip_bit, flip_bit, flip_bit, truncate, append, swap_files, remove_file, remove_folder, add_file,
    copy_file, rename_tile, rename_part, replace_with_special, add_special, link_folder, change_entries, change_entries,
    change_length_prefix, change_entry_and_tile, swap_hashes, change_checkpoint, change_signatures, change_signatures,
]


def mutate(bundle: pathlib.Path, folder: pathlib.Path, rng: random.Random) -> list:
    """Make one mutated copy. Return the descriptions of its mutations."""
    shutil.copytree(bundle, folder, copy_function=os.link)
    copy, done = Copy(folder, rng), []
    wanted = 2 if rng.random() < 0.1 else 1
    for _ in range(200):
        description = rng.choice(MUTATIONS)(copy)
        if description:
            done.append(description)
        if len(done) == wanted:
            break
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description="Make mutated copies of a bundle.")
    parser.add_argument("bundle", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", default="0")
    options = parser.parse_args()
    options.target.mkdir(parents=True, exist_ok=True)
    for number in range(options.count):
        folder = options.target / f"{number:05}"
        mutations = mutate(options.bundle, folder, random.Random(f"{options.seed}/{number}"))
        print(json.dumps({"dir": str(folder), "mutations": mutations}))


if __name__ == "__main__":
    main()
