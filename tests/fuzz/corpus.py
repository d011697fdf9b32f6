#!/usr/bin/python3
"""The corpora of the fuzzers lie in the tree as text: tests/fuzz/corpus/NAME.txt, an input a line, in hexadecimal digits.

    corpus.py unpack FILE.txt FOLDER     writes each input into a file of its own, for libFuzzer
    corpus.py pack FOLDER FILE.txt       the other way round, shortest first
"""

import hashlib
import os
import sys


def unpack(text_path, folder):
    os.makedirs(folder, exist_ok=True)
    with open(text_path, encoding="ascii") as file:
        for line in file:
            data = bytes.fromhex(line)
            with open(os.path.join(folder, hashlib.sha1(data).hexdigest()), "wb") as out:
                out.write(data)


def pack(folder, text_path):
    inputs = set()
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            inputs.add(file.read())
    with open(text_path, "w", encoding="ascii") as out:
        out.writelines(data.hex() + "\n" for data in sorted(inputs, key=lambda data: (len(data), data)))


def main():
    actions = {"unpack": unpack, "pack": pack}
    if len(sys.argv) != 4 or sys.argv[1] not in actions:
        sys.exit(__doc__)
    actions[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
