#!/usr/bin/python3
"""Fails when an #include breaks the layering of docs/architecture.md.

Run as: layering_test.py ROOT. The rules are the table ROOMS; the first half of the tests plants
violations in strings and expects each to be found, the second half checks the tree.
"""

import os
import re
import sys
import unittest

ROOT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.getcwd()

SOURCE_DIRS = ("daemon", "agent", "client", "bench")
SOURCE_SUFFIXES = (".h", ".hpp", ".cc", ".c", ".cu", ".cuh")

MESSAGES = "daemon/core/model/descriptor.h"  # the plain structs that an L2 room may know of core
L2_ROOMS = ("daemon/reduce/", "daemon/gpu/", "daemon/transport/", "daemon/session/", "daemon/observe/")
GENERATED = "rueda/v1/"
PUBLIC_CLIENT = ("rueda/rueda.h", "rueda/rueda.hpp", "client/include/")

ENGINE = ("daemon/base/", "daemon/core/", *L2_ROOMS, "daemon/engine/")
SERVICE = (*ENGINE, "daemon/service/")

# A file belongs to the first room whose prefix its path has. It may include what its room lists, and
# its own room.
ROOMS = (
    ("daemon/base/", ()),
    ("daemon/core/", ("daemon/base/",)),
    ("daemon/reduce/", ("daemon/base/",)),
    ("daemon/gpu/", ("daemon/base/",)),
    ("daemon/transport/", ("daemon/base/", MESSAGES)),
    ("daemon/session/", ("daemon/base/", MESSAGES, "client/abi/")),
    ("daemon/observe/", ("daemon/base/", MESSAGES)),
    ("daemon/engine/", ENGINE),
    ("daemon/service/", (*SERVICE, GENERATED)),
    ("daemon/ctl/", ("daemon/base/", GENERATED)),
    ("daemon/", SERVICE),  # main, config
    ("agent/", ("daemon/base/", GENERATED)),
    ("client/abi/", ()),
    ("client/include/", ("rueda/rueda.h",)),
    ("client/", ("daemon/base/", "client/abi/", *PUBLIC_CLIENT)),
    ("bench/gpu/", ("daemon/base/", "daemon/gpu/", "bench/base/stats.h")),
    ("bench/gpu_jobs/", ("bench/base/failure.h", "bench/run/job.h", "bench/machine/limits.h", "bench/base/stats.h", *PUBLIC_CLIENT)),
    ("bench/", ("daemon/base/", "daemon/core/", "daemon/reduce/", *PUBLIC_CLIENT)),
)

# Includes of libraries that only some rooms may use: (prefixes of the include, who may, why).
LIBRARIES = (
    (("grpc", "google/protobuf"), ("daemon/service/", "daemon/ctl/", "agent/"),
     "gRPC and protobuf live in service, ctl and agent"),
    (("boost/beast",), ("daemon/observe/http_server.cc",),
     "Beast takes 20 s to compile and stays in one translation unit"),
    (("boost/", "spdlog/", "fmt/", "absl/", "prometheus/", "hwy/", "CLI/", "nlohmann/", "openssl/",
      "systemd/"), ("daemon/", "agent/", "bench/"),
     "librueda lives inside the training process and links libc and libstdc++ alone"),
    (("cuda", "driver_types.h", "nccl"), ("daemon/gpu/cuda/", "daemon/gpu/element.h"),
     "CUDA is in the plugin alone: every program runs without it"),
)

# Core is pure: no thread, clock, socket, environment or log.
CORE_BANNED_INCLUDES = re.compile(
    r"(thread|stop_token|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|atomic"
    r"|chrono|c?time|iostream|ostream|fstream|filesystem|random|syslog\.h|unistd\.h|pthread\.h"
    r"|sys/.*|netinet/.*|arpa/.*|netdb\.h|boost/.*|spdlog/.*|fmt/.*|prometheus/.*|grpc.*)$")
CORE_BANNED_WORDS = re.compile(r"\b(getenv|steady_now_[mn]?s|steady_clock|system_clock)\b")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def room_of(path):
    """The (prefix, allowed) of the room that `path` is in, or None."""
    return next((room for room in ROOMS if path.startswith(room[0])), None)


def is_own_room(path, room, include):
    """main.cc is in the room daemon/, but not everything under daemon/ is."""
    if room[0] == "daemon/":
        return os.path.dirname(include) == "daemon"
    return include.startswith(room[0])


def violations(path, text):
    """One sentence for each include of `text`, the file at `path`, that breaks a rule."""
    room = room_of(path)
    if room is None:
        return [f"{path} is in no room; add it to ROOMS in tests/layering_test.py"]
    found = []
    for quoted, angled in INCLUDE.findall(text):
        include = quoted or angled
        is_rooted = include.startswith((*(folder + "/" for folder in SOURCE_DIRS), "rueda/"))
        is_ours = quoted or is_rooted
        if is_ours and not is_own_room(path, room, include) and not include.startswith(room[1]):
            if not is_rooted:
                found.append(f'{path} includes "{include}", which is not rooted at the repository')
            else:
                found.append(f"{path} includes {include}; {room[0]} may include only "
                             f"{', '.join((room[0], *room[1]))}")
        for prefixes, users, why in LIBRARIES:
            if include.startswith(prefixes) and not path.startswith(users):
                found.append(f"{path} includes {include}; {why}")
                break
        if path.startswith("daemon/core/") and CORE_BANNED_INCLUDES.match(include):
            found.append(f"{path} includes {include}; core has no thread, clock, socket, log or I/O")
    if path.startswith("daemon/core/"):
        for word in CORE_BANNED_WORDS.findall(COMMENT.sub("", text)):
            found.append(f"{path} uses {word}; core is told the time and its settings by its caller")
    return found


def source_files(root):
    for top in SOURCE_DIRS:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(SOURCE_SUFFIXES):
                    yield os.path.relpath(os.path.join(folder, name), root)


class PlantedViolations(unittest.TestCase):
    WRONG = (
        ("daemon/base/x.h", '#include "daemon/core/model/descriptor.h"'),
        ("daemon/core/x.cc", '#include "daemon/transport/frame.h"'),
        ("daemon/core/x.cc", "#include <thread>"),
        ("daemon/core/x.cc", "#  include <mutex>"),
        ("daemon/core/x.cc", "#include <chrono>"),
        ("daemon/core/x.cc", "#include <sys/socket.h>"),
        ("daemon/core/x.cc", "#include <spdlog/spdlog.h>"),
        ("daemon/core/x.cc", "#include <iostream>"),
        ("daemon/core/x.cc", '#include <cstdlib>\nauto x = std::getenv("X");'),
        ("daemon/core/x.cc", "auto now = steady_now_ms();"),
        ("daemon/reduce/cpu/x.cc", '#include "daemon/core/model/descriptor.h"'),
        ("daemon/transport/tcp/x.cc", '#include "daemon/core/job/job.h"'),
        ("daemon/transport/tcp/x.cc", '#include "daemon/observe/metrics.h"'),
        ("daemon/transport/tcp/x.cc", '#include "client/abi/rueda_abi.h"'),
        ("daemon/transport/tcp/x.cc", '#include "../frame.h"'),
        ("daemon/transport/tcp/x.cc", '#include "frame.h"'),
        ("daemon/gpu/x.cc", '#include "daemon/reduce/kernels.h"'),
        ("daemon/gpu/fake/x.cc", "#include <cuda_runtime.h>"),
        ("daemon/engine/x.cc", "#include <cuda.h>"),
        ("client/src/x.cc", "#include <cuda_runtime_api.h>"),
        ("daemon/session/x.cc", '#include "daemon/transport/transport.h"'),
        ("daemon/session/x.cc", '#include "client/src/wire/rings.h"'),
        ("daemon/observe/x.cc", '#include "daemon/session/session.h"'),
        ("daemon/observe/x.cc", "#include <boost/beast/http.hpp>"),
        ("daemon/engine/x.cc", '#include "daemon/service/control.h"'),
        ("daemon/engine/x.cc", '#include "rueda/v1/control.pb.h"'),
        ("daemon/engine/x.cc", "#include <rueda/v1/control.pb.h>"),
        ("daemon/engine/x.cc", "#include <grpcpp/grpcpp.h>"),
        ("daemon/service/x.cc", '#include "daemon/main.h"'),
        ("daemon/service/x.cc", '#include "daemon/config.h"'),
        ("daemon/main.cc", '#include "rueda/v1/admin.pb.h"'),
        ("daemon/main.cc", '#include "daemon/ctl/table.h"'),
        ("daemon/ctl/x.cc", '#include "daemon/service/admin.h"'),
        ("agent/x.cc", '#include "daemon/core/model/descriptor.h"'),
        ("agent/x.cc", '#include "client/abi/rueda_abi.h"'),
        ("client/src/x.cc", '#include "daemon/core/model/descriptor.h"'),
        ("client/include/rueda/rueda.hpp", '#include "daemon/base/status.h"'),
        ("client/src/x.cc", '#include "rueda/v1/agent.pb.h"'),
        ("client/src/x.cc", "#include <boost/asio.hpp>"),
        ("client/abi/x.h", '#include "client/src/wire/rings.h"'),
        ("bench/x.cc", '#include "client/src/wire/rings.h"'),
        ("bench/x.cc", '#include "daemon/engine/node/engine.h"'),
        ("bench/gpu/x.cc", '#include "daemon/core/model/descriptor.h"'),
        ("bench/gpu_jobs/x.cc", '#include "daemon/gpu/load.h"'),
    )
    RIGHT = (
        ("daemon/base/x.cc", '#include "daemon/base/x.h"\n#include <chrono>'),
        ("daemon/core/x.cc", '#include "daemon/base/status.h"\n#include <vector>'),
        ("daemon/core/x.cc", "// unlike getenv and steady_now_ms\n"),
        ("daemon/transport/tcp/x.cc", '#include "daemon/core/model/descriptor.h"'),
        ("daemon/session/x.cc", '#include "client/abi/rueda_abi.h"\n#include <boost/asio.hpp>'),
        ("daemon/observe/http_server.cc", "#include <boost/beast/http.hpp>"),
        ("daemon/gpu/cuda/x.cu", '#include "daemon/gpu/element.h"\n#include <cuda_runtime.h>'),
        ("daemon/engine/x.cc", '#include "daemon/session/session.h"'),
        ("daemon/service/x.cc", '#include "daemon/engine/x.h"\n#include "rueda/v1/admin.pb.h"'),
        ("daemon/main.cc", '#include "daemon/config.h"\n#include "daemon/service/x.h"'),
        ("daemon/ctl/x.cc", "#include <grpcpp/grpcpp.h>\n#include <rueda/v1/admin.grpc.pb.h>"),
        ("agent/x.cc", '#include "agent/x.h"\n#include "daemon/base/status.h"'),
        ("client/src/x.cc", '#include "client/abi/rueda_abi.h"\n#include <rueda/rueda.h>'),
        ("client/include/rueda/rueda.hpp", "#include <rueda/rueda.h>"),
        ("bench/x.cc", "#include <rueda/rueda.hpp>"),
        ("bench/gpu/x.cc", '#include "bench/gpu/measure.h"\n#include "daemon/gpu/load.h"'),
        ("bench/gpu_jobs/x.cc", '#include "bench/run/job.h"\n#include <rueda/rueda.h>'),
    )

    def test_each_wrong_include_is_found(self):
        for path, text in self.WRONG:
            with self.subTest(path=path, text=text):
                self.assertEqual(len(violations(path, text)), 1)

    def test_right_includes_are_not_found(self):
        for path, text in self.RIGHT:
            with self.subTest(path=path, text=text):
                self.assertEqual(violations(path, text), [])

    def test_a_file_in_no_room_is_found(self):
        self.assertEqual(len(violations("elsewhere/x.cc", "")), 1)


class Tree(unittest.TestCase):
    def test_the_tree_keeps_its_layers(self):
        files = list(source_files(ROOT))
        self.assertGreater(len(files), 20, f"{ROOT} is not the root of the tree")
        found = []
        for path in files:
            with open(os.path.join(ROOT, path), encoding="utf-8") as source:
                found += violations(path, source.read())
        self.assertEqual(found, [], "\n" + "\n".join(found))


if __name__ == "__main__":
    unittest.main()
