"""Checks the file RECORD of a wheel: every other file is in it, with its hash and its size."""

import base64
import csv
import hashlib
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    (record,) = [name for name in wheel.namelist() if name.endswith(".dist-info/RECORD")]
    rows = {row[0]: row[1:] for row in csv.reader(wheel.read(record).decode().splitlines())}
    assert sorted(rows) == sorted(wheel.namelist()), (sorted(rows), wheel.namelist())
    for name, (digest, size) in rows.items():
        content = wheel.read(name)
        encoded = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        expected = ["", ""] if name == record else [f"sha256={encoded}", str(len(content))]
        assert [digest, size] == expected, (name, digest, size)
print(len(rows), "files")
