#!/usr/bin/python3
"""Fails when an #include, or an import of the Python package, breaks the layering of docs/architecture.md.

Run as: layering_test.py ROOT. The rules are the table ROOMS; the first half of the tests plants
violations in strings and expects each to be found, the second half checks the tree.
"""

import ast
import os
import re
import sys
import unittest

WRITES = "--write" in sys.argv
if WRITES:
    sys.argv.remove("--write")
ROOT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.getcwd()
ROOMS_PAGE = os.path.join("docs", "rooms.md")

SOURCE_DIRS = ("daemon", "agent", "client", "bench")
SOURCE_SUFFIXES = (".h", ".hpp", ".cc", ".c", ".cu", ".cuh")
PYTHON_ROOT = "client/python/"
PACKAGE = "client/python/rueda/"
INTEGRATION = "tests/integration"

MESSAGES = "daemon/core/model/descriptor.h"  # the plain structs that an L2 room may know of core
L2_ROOMS = ("daemon/reduce/", "daemon/gpu/", "daemon/transport/", "daemon/session/", "daemon/observe/")
GENERATED = "rueda/v1/"
PUBLIC_CLIENT = ("rueda/rueda.h", "rueda/rueda.hpp", "client/include/")
JOB_IN_A_PROGRAM = ("bench/base/failure.h", "bench/base/stats.h", "bench/machine/limits.h", "bench/run/job.h")

BELOW_ENGINE = ("daemon/base/", "daemon/core/", *L2_ROOMS)
BELOW_SERVICE = (*BELOW_ENGINE, "daemon/engine/", "daemon/security/", "daemon/rpc/", "daemon/local/")
CALLS_OF_CLIENTS = ("daemon/local/client.h", "daemon/local/wire.h")  # what they link has nothing of the daemon's
BELOW_AGENT = ("daemon/base/", "daemon/security/certificates/", "daemon/security/identity.h", *CALLS_OF_CLIENTS, GENERATED)
BELOW_CLIENT = ("daemon/base/", "client/abi/", *PUBLIC_CLIENT)
BELOW_BENCH = ("daemon/base/", "daemon/core/", "daemon/reduce/", *PUBLIC_CLIENT)


def rooms_of(folder, below, *rows):
    """Returns rooms of one folder, from the bottom up: (name, names of those that it may include, what it holds)."""
    return tuple((f"{folder}{name}/", (*below, *(f"{folder}{lower}/" for lower in lowers.split())), holds)
                 for name, lowers, holds in rows)


# Each row has (prefix, what its files may include beside each other, what it holds). A file belongs to the first room whose
# prefix its path has. docs/rooms.md is this table for readers: `layering_test.py ROOT --write` writes it.
ROOMS = (
    ("daemon/base/os/", ("daemon/base/",), "The system's files, sockets, memory, CPUs and threads, behind Status."),
    ("daemon/base/", (), "What every program needs and no library has: status, check, clock, parsing."),
    *rooms_of(
        "daemon/core/", ("daemon/base/",),
        ("model", "", "What a job is: descriptors of tensors, its layout of nodes and ranks, its tree, its choices; and the "
         "mistakes that tests plant."),
        ("schedules", "model", "Collectives as data: who sends which piece to whom in which round."),
        ("messages", "model schedules", "What nodes say to each other, the batches and plans in it, and whether a batch that came "
         "is right."),
        ("order", "model messages", "The seam between a job and the ways to agree on an order: what has been submitted, what may be "
         "next."),
        ("plan", "model messages order", "Steps that repeat: a plan is recorded, declared, followed, given up and tuned."),
        ("stall", "model messages order", "Who waits for whom, and what is said about it."),
        ("modes", "model messages order plan stall", "The ways to agree on an order: negotiation, response cache, locked plan."),
        ("recovery", "model messages", "The rules R1 to R6: what survives a lost node, and who decides (docs/protocol.md)."),
        ("generations", "model messages recovery", "Who takes part in the next generation of an elastic job, and with which rank: one "
         "decision by a majority of the one before."),
        ("job", "model schedules messages order plan stall recovery", "The state machine of a job on one node: events in, one "
         "Output out.")),
    ("daemon/reduce/", ("daemon/base/",), "Sums, products, minima and conversions of elements, in vectors of the CPU."),
    ("daemon/gpu/", ("daemon/base/",), "GPUs behind one interface: a worker process a job, and the plugin of CUDA."),
    ("daemon/security/certificates/", ("daemon/base/", "daemon/security/identity.h"), "Certificates: made, read, revoked, and the folder of "
     "--tls-dir."),
    ("daemon/security/sandbox/", ("daemon/base/", "daemon/security/certificates/"), "What the daemon gives up before it serves anybody: "
     "system calls, by seccomp, and files, by Landlock."),
    ("daemon/security/", ("daemon/base/",), "Who may do what: identities, and the table of callers and actions."),
    ("daemon/rpc/", ("daemon/base/", "daemon/security/"), "gRPC as the daemon uses it: completion queues, calls, credentials, and streams "
     "of bytes."),
    ("daemon/local/", ("daemon/base/", "daemon/security/policy.h", "daemon/rpc/call_status.h", "daemon/rpc/unary.h"), "Calls at the unix socket, of launchers and "
     "operators: their frames, who serves them, and how a client asks."),
    ("daemon/transport/grpc/", ("daemon/base/", "daemon/security/", "daemon/rpc/", "daemon/transport/"), "Frames as messages of gRPC."),
    ("daemon/transport/", ("daemon/base/", MESSAGES), "Channels between neighbours that carry frames, over TCP and RDMA."),
    ("daemon/session/users/", ("daemon/base/",), "Who waits and who pays: quotas by principal, and doors at which descriptors come and "
     "go."),
    *rooms_of(
        "daemon/session/", ("daemon/base/", MESSAGES, "client/abi/", "daemon/session/session.h", "daemon/session/users/"),
        ("records", "", "Bytes of the socket and of the rings, and the texts in them; all of it is hostile until checked."),
        ("memory", "records", "Memory that is shared with processes: arenas, rings, device memory, and what happens when a page of "
         "it is lost."),
        ("submissions", "memory records", "Names that were interned, and what a process asks for by them."),
        ("server", "memory records submissions", "The unix socket: who comes, who is attached, and one session a process.")),
    ("daemon/session/", ("daemon/base/", MESSAGES, "client/abi/", "daemon/session/users/"), "Training processes at the unix socket, "
     "as the engine sees them."),
    ("daemon/observe/", ("daemon/base/", MESSAGES), "Metrics, and the HTTP port that serves them."),
    *rooms_of(
        "daemon/engine/", BELOW_ENGINE,
        ("loops", "", "Event loops that stay awake for a while, and what is posted to them."),
        ("ports", "", "What the engine asks of others: links to other nodes, addresses, proofs of a token."),
        ("memory", "", "Staging, its slots, and the threads that pass over memory together."),
        ("operation", "memory ports", "One batch under way: its buffers, its checks, its arithmetic."),
        ("device", "memory", "A job's GPU worker, and batches that live in GPU memory."),
        ("channels", "memory operation", "What goes over a channel, in which order, and what is kept until it has come."),
        ("trace", "operation ports", "What is told of a job: timelines, non-finite values, stalls."),
        ("data", "channels loops memory operation", "A data loop: the ring and the mesh of a job on this node."),
        ("job", "data device memory operation ports trace", "A job on this node: feeds the core, carries out what it says."),
        ("node", "job ports", "The engine: all jobs of the node, from their registration to their end.")),
    *rooms_of(
        "daemon/service/", (*BELOW_SERVICE, GENERATED),
        ("members", "", "Which nodes there are, and at which addresses."),
        ("convert", "members", "Messages of the core to protobuf and back; whatever comes from outside is checked here."),
        ("links", "convert members", "Control links to other nodes, and who may have one."),
        ("services", "convert links members", "The services that launchers, operators and other nodes call."),
        ("servers", "links services", "The ports, and which service is at which.")),
    ("daemon/ctl/", ("daemon/base/", "daemon/security/", "daemon/rpc/", *CALLS_OF_CLIENTS, GENERATED), "ruedactl."),
    ("daemon/", (*BELOW_SERVICE, "daemon/service/"), "ruedad's main(), its flags and its log."),
    *rooms_of(
        "agent/", BELOW_AGENT,
        ("base", "", "Small things that several rooms of ruedarun need."),
        ("process", "base", "Processes of ranks and of a private daemon: started, watched, ended, and their output."),
        ("rendezvous", "base process", "How ruedaruns of several nodes find each other and share a token."),
        ("cli", "base rendezvous", "Flags, hosts and environments, those of other launchers and of Horovod too."),
        ("records", "base cli", "Files that a job leaves: plans, timelines, tuning."),
        ("launch", "base process rendezvous cli records", "A job from its command line to its exit code; main().")),
    ("client/abi/", (), "The local ABI: what librueda and the daemon share."),
    ("client/include/", ("rueda/rueda.h",), "The public headers of librueda."),
    *rooms_of(
        "client/src/", BELOW_CLIENT,
        ("wire", "", "The socket, the rings and the arenas that are shared with the daemon."),
        ("request", "", "Tensors and their checks: what may be asked for."),
        ("start", "wire", "Where the daemon is, and the job of a program that nobody launched."),
        ("device", "wire", "Memory of GPUs: recognised, shared, or copied through host memory."),
        ("session", "wire request start device", "A process's session: submit, wait, complete."),
        ("api", "wire request session", "The C functions, and the one session of the process.")),
    ("client/jax/xla/", (*PUBLIC_CLIENT, "client/jax/"), "librueda_jax.so: the handlers that XLA calls for rueda.jax."),
    ("client/jax/", ("daemon/base/",), "What those handlers need that knows nothing of XLA: threads for completions, places of calls, large pages."),
    ("client/mpi/", (*PUBLIC_CLIENT, "daemon/base/", "client/jax/large_pages.h"), "librueda_mpi.so: the part of MPI that an unmodified jaxlib calls."),
    ("client/tensorflow/", PUBLIC_CLIENT, "librueda_tensorflow.so: TensorFlow's ops over librueda, by its C API."),
    *rooms_of(
        PACKAGE, (),
        ("_core", "", "librueda from Python: its functions, memory, errors, handles and process sets, for NumPy's arrays."),
        ("_torch_common", "_core", "PyTorch's tensors as librueda reads them, in the host's memory or a GPU's."),
        ("common", "_core", "What Horovod's front ends have in common: the job, exceptions, process sets."),
        ("_elastic", "_core common", "States, and the loop of elastic training, for Horovod's front ends."),
        ("torch", "_core _torch_common common _elastic", "`rueda.torch`: Horovod's API for PyTorch."),
        ("_tensorflow", "_core common _elastic", "TensorFlow's tensors, ops, names and gradients, for the front ends below."),
        ("_keras", "_core common _elastic _tensorflow", "Keras's optimizers, callbacks and states, for both Keras front ends."),
        ("tensorflow", "_core common _elastic _tensorflow _keras", "`rueda.tensorflow` and `rueda.tensorflow.keras`: Horovod's API for TensorFlow and tf.keras."),
        ("distributed", "_core _torch_common", "`rueda.distributed`: a backend of torch.distributed."),
        ("jax", "_core", "`rueda.jax`: collectives for JAX, eager and compiled."),
        ("keras", "_core common _elastic _tensorflow _keras jax torch", "`rueda.keras`: Horovod's API for Keras 3, on three backends.")),
    (PACKAGE, (PACKAGE + "_core/",), "The public names of `rueda`, and the programs of a wheel."),
    ("client/examples/", PUBLIC_CLIENT, "Programs that the guides show."),
    ("bench/gpu/", ("daemon/base/", "daemon/gpu/", "bench/base/stats.h"), "What a GPU and its plugin can do."),
    ("bench/gpu_jobs/", (*JOB_IN_A_PROGRAM, *PUBLIC_CLIENT), "Jobs whose tensors are in GPU memory."),
    ("bench/micro/", (*BELOW_BENCH, "daemon/", "client/src/", "bench/base/"), "Parts of the daemon, each alone."),
    ("bench/mpi/", (*BELOW_BENCH, "bench/"), "The same work in Open MPI."),
    ("bench/predict/", ("bench/base/",), "What a step takes on a cluster, by what moving and adding bytes costs: a part of rueda-sim."),
    ("bench/sim/", (*BELOW_BENCH, "bench/base/", "bench/predict/"), "rueda-sim: thousands of GPUs, in simulated time."),
    *rooms_of(
        "bench/", BELOW_BENCH,
        ("base", "", "Statistics, sizes, and the tensors of well-known models."),
        ("values", "base", "What the tensors hold, and whether the result is right."),
        ("cli", "base values", "rueda-bench's flags, and how it prints."),
        ("machine", "base cli values", "The limits of this machine: its memory, its cores, its links."),
        ("run", "base cli machine values", "rueda-bench's jobs, timed; main().")),
)

# Only some rooms may include these libraries: (prefixes of the include, who may, why).
LIBRARIES = (
    (("grpc", "google/protobuf"), ("daemon/rpc/", "daemon/transport/grpc/", "daemon/service/", "daemon/ctl/",
                                             "agent/"),
     "gRPC and protobuf live in rpc, transport/grpc, service, ctl and agent"),
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
    """Returns the row of the room that `path` is in, or None."""
    return next((room for room in ROOMS if is_in_room(path, room[0])), None)


def is_in_room(path, room):
    """Returns whether a path is in a room: main.cc is in the room daemon/, but not everything under daemon/ is; the Python
    package is treated alike."""
    return os.path.dirname(path) + "/" == room if room in ("daemon/", PACKAGE) else path.startswith(room)


def circles():
    """Returns rooms that may include each other, by whatever way; [] if there are none."""
    prefixes = [room[0] for room in ROOMS]
    below = {prefix: {other for other in prefixes if other not in (prefix, "daemon/", PACKAGE) and other.startswith(allowed)}
             for prefix, allowed, _ in ROOMS}
    for middle in prefixes:  # by Warshall's algorithm
        for prefix in prefixes:
            if middle in below[prefix]:
                below[prefix] |= below[middle]
    return [prefix for prefix in prefixes if prefix in below[prefix]]


def python_imports(path, text):
    """Yields what the module at `path`, a part of the package rueda, imports of it, as in
    client/python/rueda/_core/_errors/error_for."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            parents = path.split("/")[:-node.level] if node.level else PYTHON_ROOT.rstrip("/").split("/")
            for alias in node.names:
                yield "/".join([*parents, *(node.module or "").split("."), alias.name]).replace("//", "/")
        elif isinstance(node, ast.Import):
            yield from (PYTHON_ROOT + alias.name.replace(".", "/") for alias in node.names)


def python_violations(path, text):
    room = room_of(path)
    found = []
    for imported in python_imports(path, text):
        if (imported + "/").startswith(PACKAGE):
            theirs = (room_of(imported + "/") or (PACKAGE,))[0]  # a module beside __init__.py is the package's own
            if theirs not in (room[0], *room[1]):
                found.append(f"{path} imports {imported}; {room[0]} may import only {', '.join((room[0], *room[1]))}")
    return found


def violations(path, text):
    """Returns one sentence for each include of `text`, the file at `path`, that breaks a rule."""
    room = room_of(path)
    if room is None:
        return [f"{path} is in no room; add it to ROOMS in tests/layering_test.py"]
    if path.endswith(".py"):
        return python_violations(path, text)
    found = []
    for quoted, angled in INCLUDE.findall(text):
        include = quoted or angled
        is_rooted = include.startswith((*(folder + "/" for folder in SOURCE_DIRS), "rueda/"))
        is_ours = quoted or is_rooted
        if is_ours and not is_in_room(include, room[0]) and not include.startswith(room[1]):
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
                path = os.path.relpath(os.path.join(folder, name), root)
                if name.endswith(SOURCE_SUFFIXES) or name.endswith(".py") and path.startswith(PACKAGE):
                    yield path


def integration_violations(files):
    """Returns the violations in `files`, {path: text} of tests/integration, whose tests import by name alone (run.py): what is in
    support or beside them."""
    folders = {}
    for path in files:
        folders.setdefault(os.path.basename(path)[:-3], []).append(os.path.dirname(path))
    found = [f"{name}.py is in {' and in '.join(there)}" for name, there in folders.items() if len(there) > 1]
    for path, text in files.items():
        for name in re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE):
            allowed = (os.path.dirname(path), f"{INTEGRATION}/support")
            found += [f"{path} imports {name}, which is in {folder} and not in {' or '.join(allowed)}"
                      for folder in folders.get(name, []) if folder not in allowed]
    return found


FOLDERS_OF_ROOMS = ("daemon/core/", "daemon/engine/", "daemon/service/", "agent/", "client/src/", PACKAGE, "bench/")


def folder_of(prefix):
    return next((folder for folder in FOLDERS_OF_ROOMS if prefix.startswith(folder)), prefix.split("/")[0] + "/")


def named(prefixes):
    return ", ".join(f"`{prefix}`" for prefix in prefixes) or "nothing"


def rooms_page():
    """Returns the text of docs/rooms.md."""
    lines = ["# The rooms of the tree", "",
             "Every folder with C++, or of the Python package, is a room: it holds one kind of thing, and its files may include (or",
             "import) each other and what stands beside it, and nothing else of this project. `tests/layering_test.py` has this table,",
             "fails when an `#include` or an `import` breaks it, and writes this page when it is told to. Within a folder rooms stand",
             "from the bottom up; a room in a room stands before that."]
    folders = {}
    for room in ROOMS:
        folders.setdefault(folder_of(room[0]), []).append(room)
    for folder, rooms in folders.items():
        everywhere = [one for one in rooms[0][1] if not one.startswith(folder) and all(one in room[1] for room in rooms)]
        lines += ["", f"## {folder}", ""]
        if everywhere:
            lines += [f"All of them may include {named(everywhere)}.", ""]
        lines += ["| room | holds | may include |", "|---|---|---|"]
        for prefix, allowed, holds in rooms:
            inside = [one.removeprefix(folder).rstrip("/") for one in allowed if one.startswith(folder) and one != folder]
            outside = [one for one in allowed if not one.startswith(folder) and one not in everywhere]
            name = prefix.removeprefix(folder).rstrip("/") or prefix
            lines.append(f"| `{name}` | {holds} | {named([*inside, *outside])} |")
    return "\n".join(lines) + "\n"


class PlantedViolations(unittest.TestCase):
    WRONG = (
        ("daemon/core/model/x.h", '#include "daemon/core/messages/messages.h"'),
        ("daemon/core/order/x.h", '#include "daemon/core/modes/x.h"'),
        ("daemon/core/job/x.cc", '#include "daemon/core/modes/x.h"'),
        ("daemon/core/modes/x.cc", '#include "daemon/core/job/x.h"'),
        ("daemon/engine/data/x.cc", '#include "daemon/engine/job/x.h"'),
        ("daemon/engine/device/x.cc", '#include "daemon/engine/data/x.h"'),
        ("daemon/service/convert/x.cc", '#include "daemon/service/links/x.h"'),
        ("agent/records/x.cc", '#include "agent/launch/x.h"'),
        ("client/src/request/x.cc", '#include "client/src/session/x.h"'),
        ("bench/values/x.cc", '#include "bench/run/x.h"'),
        ("daemon/base/x.h", '#include "daemon/core/model/descriptor.h"'),
        ("daemon/core/model/x.cc", '#include "daemon/transport/frame.h"'),
        ("daemon/core/model/x.cc", "#include <thread>"),
        ("daemon/core/model/x.cc", "#  include <mutex>"),
        ("daemon/core/model/x.cc", "#include <chrono>"),
        ("daemon/core/model/x.cc", "#include <sys/socket.h>"),
        ("daemon/core/model/x.cc", "#include <spdlog/spdlog.h>"),
        ("daemon/core/model/x.cc", "#include <iostream>"),
        ("daemon/core/model/x.cc", '#include <cstdlib>\nauto x = std::getenv("X");'),
        ("daemon/core/model/x.cc", "auto now = steady_now_ms();"),
        ("daemon/reduce/cpu/x.cc", '#include "daemon/core/model/descriptor.h"'),
        ("daemon/transport/tcp/x.cc", '#include "daemon/core/job/job.h"'),
        ("daemon/transport/tcp/x.cc", '#include "daemon/observe/metrics.h"'),
        ("daemon/transport/tcp/x.cc", '#include "client/abi/rueda_abi.h"'),
        ("daemon/transport/tcp/x.cc", '#include "../frame.h"'),
        ("daemon/transport/tcp/x.cc", '#include "frame.h"'),
        ("daemon/gpu/x.cc", '#include "daemon/reduce/kernels.h"'),
        ("daemon/gpu/worker/x.cc", "#include <cuda_runtime.h>"),
        ("daemon/engine/job/x.cc", "#include <cuda.h>"),
        ("client/src/wire/x.cc", "#include <cuda_runtime_api.h>"),
        ("daemon/session/x.cc", '#include "daemon/transport/transport.h"'),
        ("daemon/session/x.cc", '#include "client/src/wire/rings.h"'),
        ("daemon/observe/x.cc", '#include "daemon/session/session.h"'),
        ("daemon/observe/x.cc", "#include <boost/beast/http.hpp>"),
        ("daemon/engine/job/x.cc", '#include "daemon/service/links/control.h"'),
        ("daemon/engine/job/x.cc", '#include "rueda/v1/control.pb.h"'),
        ("daemon/engine/job/x.cc", "#include <rueda/v1/control.pb.h>"),
        ("daemon/engine/job/x.cc", "#include <grpcpp/grpcpp.h>"),
        ("daemon/transport/tcp/x.cc", "#include <grpcpp/grpcpp.h>"),
        ("daemon/transport/x.cc", '#include "daemon/rpc/stream.h"'),
        ("daemon/service/services/x.cc", '#include "daemon/main.h"'),
        ("daemon/service/services/x.cc", '#include "daemon/config.h"'),
        ("daemon/main.cc", '#include "rueda/v1/admin.pb.h"'),
        ("daemon/main.cc", '#include "daemon/ctl/table.h"'),
        ("daemon/ctl/x.cc", '#include "daemon/service/services/admin.h"'),
        ("agent/launch/x.cc", '#include "daemon/core/model/descriptor.h"'),
        ("agent/launch/x.cc", '#include "client/abi/rueda_abi.h"'),
        ("client/src/wire/x.cc", '#include "daemon/core/model/descriptor.h"'),
        ("client/include/rueda/rueda.hpp", '#include "daemon/base/status.h"'),
        ("client/src/wire/x.cc", '#include "rueda/v1/agent.pb.h"'),
        ("client/src/wire/x.cc", "#include <boost/asio.hpp>"),
        ("client/abi/x.h", '#include "client/src/wire/rings.h"'),
        ("bench/run/x.cc", '#include "client/src/wire/rings.h"'),
        ("bench/run/x.cc", '#include "daemon/engine/node/engine.h"'),
        ("bench/gpu/x.cc", '#include "daemon/core/model/descriptor.h"'),
        ("bench/gpu_jobs/x.cc", '#include "daemon/gpu/load.h"'),
        (PACKAGE + "_core/_x.py", "from ..torch import _ops"),
        (PACKAGE + "_core/_x.py", "def f():\n    from rueda.torch._ops import allreduce_async"),
        (PACKAGE + "_core/_x.py", "from .. import allreduce"),
        (PACKAGE + "_core/_x.py", "import rueda"),
        (PACKAGE + "_torch_common/_x.py", "from ..common.exceptions import horovod_error"),
        (PACKAGE + "distributed/_x.py", "from ..torch._tensors import result_of"),
        (PACKAGE + "distributed/_x.py", "from .. import torch"),
        (PACKAGE + "torch/elastic/_x.py", "from ...distributed import _start"),
        (PACKAGE + "_x.py", "from .torch import init"),
    )
    RIGHT = (
        ("daemon/base/x.cc", '#include "daemon/base/x.h"\n#include <chrono>'),
        ("daemon/core/model/x.cc", '#include "daemon/base/status.h"\n#include <vector>'),
        ("daemon/core/model/x.cc", "// unlike getenv and steady_now_ms\n"),
        ("daemon/transport/tcp/x.cc", '#include "daemon/core/model/descriptor.h"'),
        ("daemon/session/x.cc", '#include "client/abi/rueda_abi.h"\n#include <boost/asio.hpp>'),
        ("daemon/observe/http_server.cc", "#include <boost/beast/http.hpp>"),
        ("daemon/gpu/cuda/x.cu", '#include "daemon/gpu/element.h"\n#include <cuda_runtime.h>'),
        ("daemon/engine/job/x.cc", '#include "daemon/session/session.h"'),
        ("daemon/service/services/x.cc", '#include "daemon/engine/node/x.h"\n#include "rueda/v1/admin.pb.h"'),
        ("daemon/main.cc", '#include "daemon/config.h"\n#include "daemon/service/services/x.h"'),
        ("daemon/ctl/x.cc", "#include <grpcpp/grpcpp.h>\n#include <rueda/v1/admin.grpc.pb.h>"),
        ("agent/launch/x.cc", '#include "agent/base/x.h"\n#include "daemon/base/status.h"'),
        ("client/src/wire/x.cc", '#include "client/abi/rueda_abi.h"\n#include <rueda/rueda.h>'),
        ("client/include/rueda/rueda.hpp", "#include <rueda/rueda.h>"),
        ("bench/run/x.cc", "#include <rueda/rueda.hpp>"),
        ("bench/gpu/x.cc", '#include "bench/gpu/measure.h"\n#include "daemon/gpu/load.h"'),
        ("bench/gpu_jobs/x.cc", '#include "bench/run/job.h"\n#include <rueda/rueda.h>'),
        (PACKAGE + "_core/_x.py", "import torch\nfrom . import _library\nfrom ._errors import error_for"),
        (PACKAGE + "torch/_x.py", "from .._core import _stream_pending\nfrom .._torch_common._device import find\nfrom . import elastic"),
        (PACKAGE + "torch/elastic/_x.py", "from .. import _job\nfrom ..._core._context import rank"),
        (PACKAGE + "distributed/_x.py", "import torch.distributed as dist\nfrom .._torch_common import _device"),
        (PACKAGE + "_x.py", "from ._core._memory import empty\nfrom ._programs import ruedad"),
    )

    def test_each_wrong_include_is_found(self):
        for path, text in self.WRONG:
            with self.subTest(path=path, text=text):
                self.assertEqual(len(violations(path, text)), 1)

    def test_right_includes_are_not_found(self):
        for path, text in self.RIGHT:
            with self.subTest(path=path, text=text):
                self.assertEqual(violations(path, text), [])

    def test_a_helper_in_another_room_is_found(self):
        """torch_on_gpu once was in a room, and was imported from another."""
        files = {f"{INTEGRATION}/support/harness.py": "import os\n", f"{INTEGRATION}/torch/on_gpu.py": "from harness import run\n",
                 f"{INTEGRATION}/torch/one.py": "import harness\nfrom on_gpu import CUDA\n"}
        self.assertEqual(integration_violations(files), [])
        files[f"{INTEGRATION}/distributed/two.py"] = "import torch\nfrom on_gpu import CUDA\n"
        self.assertEqual(len(integration_violations(files)), 1)
        self.assertEqual(len(integration_violations({f"{INTEGRATION}/a/one.py": "", f"{INTEGRATION}/b/one.py": ""})), 1)

    def test_a_file_in_no_room_is_found(self):
        for path in ("elsewhere/x.cc", "daemon/core/x.cc", "daemon/engine/x.cc", "agent/x.cc", "client/src/x.cc", "bench/x.cc"):
            self.assertEqual(len(violations(path, "")), 1, path)


class Tree(unittest.TestCase):
    def test_integration_tests_import_what_is_in_support_or_beside_them(self):
        files = {}
        for folder, _, names in os.walk(os.path.join(ROOT, INTEGRATION)):
            for name in names:
                if name.endswith(".py"):
                    with open(os.path.join(folder, name), encoding="utf-8") as source:
                        files[os.path.relpath(os.path.join(folder, name), ROOT)] = source.read()
        self.assertGreater(len(files), 20)
        found = integration_violations(files)
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_no_rooms_may_include_each_other(self):
        self.assertEqual(circles(), [])

    def test_the_page_for_readers_is_this_table(self):
        with open(os.path.join(ROOT, ROOMS_PAGE), encoding="utf-8") as page:
            self.assertEqual(page.read(), rooms_page(), f"run {sys.argv[0]} . --write")

    def test_each_room_has_files(self):
        files = list(source_files(ROOT))
        self.assertEqual([room[0] for room in ROOMS if not any(room_of(path) is room for path in files)], [])

    def test_the_tree_keeps_its_layers(self):
        files = list(source_files(ROOT))
        self.assertGreater(len(files), 20, f"{ROOT} is not the root of the tree")
        found = []
        for path in files:
            with open(os.path.join(ROOT, path), encoding="utf-8") as source:
                found += violations(path, source.read())
        self.assertEqual(found, [], "\n" + "\n".join(found))


if __name__ == "__main__":
    if WRITES:
        with open(os.path.join(ROOT, ROOMS_PAGE), "w", encoding="utf-8") as out:
            out.write(rooms_page())
    unittest.main()
