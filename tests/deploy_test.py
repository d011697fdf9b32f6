#!/usr/bin/python3
"""Checks what is in deploy/: with linters where there is one, else by hand.

Run as: deploy_test.py ROOT BUILD_DIR. A check whose tool is not installed, or whose program is not built,
is skipped and says so; tests/run.sh installs all tools.
"""

import http.server
import ipaddress
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
import zipfile

ROOT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.getcwd()
BUILD_DIR = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
DEPLOY = os.path.join(ROOT, "deploy")
RUEDAD = os.path.join(BUILD_DIR, "bin", "ruedad")
SERVICE = os.path.join(DEPLOY, "systemd", "ruedad.service")
KUBERNETES = os.path.join(DEPLOY, "kubernetes")
YAMLLINT_RULES = "{extends: default, rules: {line-length: {max: 110}, document-start: disable}}"

sys.dont_write_bytecode = True
sys.path.insert(0, DEPLOY)
import metrics_summary  # noqa: E402  # after the path is set

try:
    import yaml
except ImportError:
    yaml = None

needs_yaml = unittest.skipUnless(yaml, "PyYAML is not installed (it comes with yamllint)")
needs_ruedad = unittest.skipUnless(os.access(RUEDAD, os.X_OK), f"{RUEDAD} is not built")


def needs_tool(name, package):
    return unittest.skipUnless(shutil.which(name), f"{name} is not installed (package {package})")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def run(*command, **options):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, timeout=60, **options)


def sections():
    """Returns the sections of packages.txt: name to packages."""
    found, current = {}, None
    for line in read("deploy", "packages.txt").splitlines():
        header = re.match(r"\[(\w+)\]$", line)
        if header:
            current = found.setdefault(header.group(1), [])
        elif line and not line.startswith("#"):
            current.append(line.split()[0])
    return found


class Packages(unittest.TestCase):
    """Tests packages.sh, on a machine made of stubs that log what they are asked to do."""

    STUBS = {
        # INSTALLED names what is there; install adds to it.
        "dpkg-query": 'grep -qx "${@: -1}" "$INSTALLED" && printf installed',
        "id": 'echo "${FAKE_UID:-0}"',
        "env": 'while [[ "$1" == *=* ]]; do shift; done; exec "$@"',
        "apt-get": '''
            echo "apt-get $*" >>"$LOG"
            for word in "$@"; do
              case "$word" in
                --simulate) [ -e "$INSTALLED.updated" ]; exit ;;
                update) : >"$INSTALLED.updated" ;;
                install) is_install=yes ;;
                -*) ;;
                *=*) ;;
                *) if [ -n "${is_install:-}" ]; then echo "$word" >>"$INSTALLED"; fi ;;
              esac
            done''',
        "sudo": 'echo "sudo $*" >>"$LOG"; exec "$@"',
    }

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="rueda-test-packages.")
        self.addCleanup(shutil.rmtree, self.dir)
        self.installed = os.path.join(self.dir, "installed")
        self.log = os.path.join(self.dir, "log")
        for path in (self.installed, self.log):
            with open(path, "w", encoding="utf-8"):
                pass
        for name, body in self.STUBS.items():
            path = os.path.join(self.dir, name)
            with open(path, "w", encoding="utf-8") as stub:
                stub.write("#!/bin/bash\n" + textwrap.dedent(body) + "\n")
            os.chmod(path, 0o755)

    def packages(self, *arguments, without=(), **environment):
        for name in without:
            os.remove(os.path.join(self.dir, name))
        # The folder has only what the script needs of the machine, so that "no sudo" means no sudo.
        for tool in ("awk", "grep", "tr", "true"):
            link = os.path.join(self.dir, tool)
            if not os.path.exists(link):
                os.symlink(shutil.which(tool), link)
        return run("/bin/bash", os.path.join(DEPLOY, "packages.sh"), *arguments,
                   env={"PATH": self.dir, "INSTALLED": self.installed, "LOG": self.log, **environment})

    def logged(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def test_lists_the_packages_of_the_sections_named(self):
        self.assertEqual(self.packages("--list", "build", "runtime").stdout.split(),
                         sections()["build"] + sections()["runtime"])

    def test_nothing_is_done_when_nothing_is_missing(self):
        with open(self.installed, "w", encoding="utf-8") as installed:
            installed.write("\n".join(sections()["build"]) + "\n")
        result = self.packages("build", FAKE_UID="1000", without=("sudo",))
        self.assertEqual((result.returncode, result.stdout, self.logged()), (0, "", ""))

    def test_installs_what_is_missing_and_only_that(self):
        with open(self.installed, "w", encoding="utf-8") as installed:
            installed.write("python3\n")
        with open(self.installed + ".updated", "w", encoding="utf-8"):
            pass
        result = self.packages("runtime")
        self.assertEqual(result.returncode, 0, result.stdout)
        install = self.logged().splitlines()[-1]
        self.assertIn("-y", install.split())
        self.assertTrue(install.endswith("--no-install-recommends python3-numpy python3-sklearn"), install)
        self.assertNotIn("update", self.logged().split())
        self.assertNotIn("sudo", self.logged())
        self.assertEqual(self.packages("--missing", "runtime").stdout, "")

    def test_fetches_the_index_when_the_packages_are_not_known(self):
        result = self.packages("runtime")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("update", self.logged().split())

    def test_uses_sudo_when_not_root(self):
        result = self.packages("runtime", FAKE_UID="1000")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("sudo env ", self.logged())

    def test_says_what_to_do_without_root_and_sudo(self):
        result = self.packages("runtime", FAKE_UID="1000", without=("sudo",))
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get install python3 python3-numpy python3-sklearn", result.stdout)
        self.assertEqual(self.logged(), "")

    def test_says_that_the_system_is_not_debian_like(self):
        result = self.packages("runtime", without=("apt-get",))
        self.assertEqual(result.returncode, 1)
        self.assertIn("not a Debian-like system", result.stdout)

    def test_an_unknown_section_is_an_error(self):
        result = self.packages("nosuch")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no section 'nosuch'", result.stdout)

    def test_each_package_is_listed_once_and_has_a_reason(self):
        names = [name for section in sections().values() for name in section]
        self.assertEqual(len(names), len(set(names)))
        for line in read("deploy", "packages.txt").splitlines():
            if line and not line.startswith(("#", "[")):
                self.assertRegex(line, r"^\S+ +# \S")


class Docker(unittest.TestCase):
    TEXT = read("deploy", "docker", "Dockerfile")

    def test_what_it_copies_from_the_tree_is_there(self):
        copies = re.findall(r"^COPY (?!--from)(.+) \S+$", self.TEXT, re.MULTILINE)
        self.assertTrue(copies)
        for source in " ".join(copies).split():
            self.assertTrue(os.path.exists(os.path.join(ROOT, source)), source)

    def test_its_package_sections_exist(self):
        used = re.findall(r"packages\.sh ([a-z ]+?) &&", self.TEXT)
        self.assertEqual(len(used), 2)
        for section in " ".join(used).split():
            self.assertIn(section, sections())

    def test_nothing_runs_as_root(self):
        user, group = re.search(r"(?m)^USER (\d+):(\d+)$", self.TEXT).groups()
        self.assertNotIn("0", (user, group))
        self.assertRegex(self.TEXT, rf"groupadd --gid {group} rueda")
        self.assertRegex(self.TEXT, rf"useradd --uid {user} --gid {group} ")
        self.assertIn(f"install -d -o {user} -g {group} /run/rueda", self.TEXT)
        # A volume takes the owner of its folder.
        self.assertLess(self.TEXT.rindex("install -d -o"), self.TEXT.rindex("VOLUME /run/rueda"))

    def test_it_runs_what_it_installs(self):
        self.assertIn("build/release/bin/ruedad ", self.TEXT)
        self.assertIn('ENTRYPOINT ["/usr/bin/ruedad"', self.TEXT)

    @needs_ruedad
    @needs_tool("dpkg-query", "dpkg")
    def test_the_image_has_every_library_that_ruedad_loads(self):
        libraries = re.findall(r"=> (/\S+)", run("ldd", RUEDAD).stdout)
        self.assertTrue(libraries)
        wanted = {os.path.realpath(path) for path in libraries}
        # The programs may come from the listed packages, or be what every Debian has.
        closure = set(run("apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests",
                          "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances",
                          *sections()["libraries"], "libc6", "libstdc++6").stdout.split())
        for path in sorted(wanted):
            owner = owner_of(path)
            if not path.startswith(BUILD_DIR):
                self.assertIn(owner, closure, f"{path} of package {owner}")


def owner_of(path):
    """Returns the package that brings the file. Under a merged /usr, packages of old name it without /usr."""
    for name in (path, path.removeprefix("/usr")):
        found = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    return None


class Systemd(unittest.TestCase):
    @needs_tool("systemd-analyze", "systemd")
    def test_the_unit_is_valid(self):
        with tempfile.TemporaryDirectory(prefix="rueda-test-unit.") as folder:
            unit = os.path.join(folder, "ruedad.service")
            with open(unit, "w", encoding="utf-8") as file:
                # The check wants the program to be there, and it is not there before an installation.
                file.write(read("deploy", "systemd", "ruedad.service").replace("/usr/bin/ruedad", "/bin/true"))
            result = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    @needs_tool("systemd-analyze", "systemd")
    def test_the_drop_in_for_the_network_is_valid(self):
        with tempfile.TemporaryDirectory(prefix="rueda-test-unit.") as folder:
            unit = os.path.join(folder, "ruedad.service")
            os.mkdir(unit + ".d")
            shutil.copy(os.path.join(DEPLOY, "systemd", "ruedad-network.conf"), os.path.join(unit + ".d", "network.conf"))
            with open(unit, "w", encoding="utf-8") as file:
                file.write(read("deploy", "systemd", "ruedad.service").replace("/usr/bin/ruedad", "/bin/true"))
            result = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        allowed = re.findall(r"(?m)^IPAddressAllow=(.+)$", read("deploy", "systemd", "ruedad-network.conf"))
        self.assertIn("localhost", allowed)
        # It fits the nodes of the other examples.
        nodes = re.findall(r"=(10\.[\d.]+):28400", read("deploy", "systemd", "ruedad.toml"))
        networks = [ipaddress.ip_network(one) for one in allowed if one != "localhost"]
        for node in nodes:
            self.assertTrue(any(ipaddress.ip_address(node) in network for network in networks), node)

    def test_the_unit_lets_the_daemon_confine_itself(self):
        allowed = " ".join(re.findall(r"(?m)^SystemCallFilter=([^~].*)$", read("deploy", "systemd", "ruedad.service"))).split()
        for call in ("seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"):
            self.assertIn(call, allowed)

    @needs_tool("systemd-analyze", "systemd")
    def test_the_unit_is_hardened(self):
        result = run("systemd-analyze", "security", "--offline=true", "--threshold=25", SERVICE)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_the_unit_and_the_example_agree(self):
        unit, example = read("deploy", "systemd", "ruedad.service"), read("deploy", "systemd", "ruedad.toml")
        self.assertIn("Type=notify", unit)
        directory = re.search(r"^ReadWritePaths=-(\S+)$", unit, re.MULTILINE).group(1)
        self.assertIn(f'socket = "{directory}/ruedad.sock"', example)

    def test_the_sockets_folder_outlives_the_unit(self):
        """RuntimeDirectory= would be removed at each stop, and containers that have mounted it would keep the old folder."""
        unit = read("deploy", "systemd", "ruedad.service")
        self.assertNotRegex(unit, r"(?m)^(RuntimeDirectory|DynamicUser)=")
        user = re.search(r"(?m)^User=(\S+)$", unit).group(1)
        self.assertRegex(read("deploy", "systemd", "rueda-tmpfiles.conf"), rf"(?m)^d /run/rueda 0755 {user} {user} -$")
        self.assertRegex(read("deploy", "systemd", "rueda-sysusers.conf"), rf"(?m)^u {user} - ")

    @needs_tool("systemd-sysusers", "systemd")
    @needs_tool("systemd-tmpfiles", "systemd")
    def test_systemd_makes_the_user_and_the_folder(self):
        with tempfile.TemporaryDirectory(prefix="rueda-test-root.") as root:
            for tool, name in (("sysusers", "rueda-sysusers.conf"), ("tmpfiles", "rueda-tmpfiles.conf")):
                folder = os.path.join(root, "usr", "lib", f"{tool}.d")
                os.makedirs(folder)
                shutil.copy(os.path.join(DEPLOY, "systemd", name), os.path.join(folder, "rueda.conf"))
            os.makedirs(os.path.join(root, "etc"))
            made = run("systemd-sysusers", f"--root={root}")
            self.assertEqual(made.returncode, 0, made.stdout)
            with open(os.path.join(root, "etc", "passwd"), encoding="utf-8") as file:
                self.assertRegex(file.read(), r"(?m)^rueda:")
            if os.geteuid() != 0:
                return  # this user cannot give the folder to another one
            made = run("systemd-tmpfiles", "--create", f"--root={root}")
            self.assertEqual(made.returncode, 0, made.stdout)
            self.assertEqual(os.stat(os.path.join(root, "run", "rueda")).st_mode & 0o7777, 0o755)

    @needs_ruedad
    def test_the_unit_gives_up_on_wrong_settings_alone(self):
        unit = read("deploy", "systemd", "ruedad.service")
        self.assertRegex(unit, r"(?m)^StartLimitIntervalSec=0$")
        final = re.search(r"(?m)^RestartPreventExitStatus=(.+)$", unit).group(1).split()
        wrong = (["--no-such-flag"], ["--control-port", "many"], ["--config", "/no/such/file"], ["--streams", "0"],
                 ["--label", "a=b", "--label", "a=c"], ["--node-id", "x" * 64], ["--listen-host", "192.0.2.1"])
        for arguments in wrong:
            self.assertIn(str(run(RUEDAD, *arguments).returncode), final, arguments)
        # An address that is not there yet may come.
        absent = run(RUEDAD, "--private", "--socket", "@rueda-deploy-test", "--listen-host", "192.0.2.1", "--insecure")
        self.assertEqual(absent.returncode, 1, absent.stdout)

    def test_configuration_keys_are_flat(self):
        for line in read("deploy", "systemd", "ruedad.toml").splitlines():
            self.assertRegex(line, r"^(#.*|[a-z-]+ = \S.*|)$")

    @needs_ruedad
    def test_ruedad_has_a_flag_for_every_key_and_variable(self):
        usage = run(RUEDAD, "--help").stdout
        configuration = read("deploy", "systemd", "ruedad.toml")
        configuration += textwrap.dedent(read("deploy", "kubernetes", "configmap.yaml").split("|\n")[1])
        keys = re.findall(r"^([a-z-]+) = ", configuration, re.MULTILINE)
        keys += [name.lower().replace("_", "-") for name in
                 re.findall(r"RUEDAD_(\w+)", read("deploy", "kubernetes", "daemonset.yaml"))]
        keys += re.findall(r"--([a-z-]+)", re.search(r"^ENTRYPOINT.*$", Docker.TEXT, re.MULTILINE).group())
        for key in set(keys):
            self.assertRegex(usage, rf"--{key}\b")


class Installation(unittest.TestCase):
    """Tests what a user of the client library does after `cmake --install`."""

    EXAMPLE = os.path.join(ROOT, "client", "examples", "allreduce.cc")

    def setUp(self):
        if not os.path.exists(os.path.join(BUILD_DIR, "lib", "librueda.so")):
            self.skipTest(f"librueda is not built in {BUILD_DIR}")
        self.dir = tempfile.mkdtemp(prefix="rueda-test-install.")
        self.addCleanup(shutil.rmtree, self.dir)
        self.prefix = os.path.join(self.dir, "prefix")
        self.succeed("cmake", "--install", BUILD_DIR, "--component", "client", "--prefix", self.prefix)

    def succeed(self, *command, **options):
        result = run(*command, **options)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout

    def find(self, name):
        found = [folder for folder, _, names in os.walk(self.prefix) for one in names if os.path.join(folder, one).endswith("/" + name)]
        self.assertEqual(len(found), 1, f"{name} is installed in {found}")
        return found[0]

    @needs_tool("pkg-config", "pkg-config")
    def test_a_program_is_built_by_pkg_config(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": self.find("rueda.pc")}
        flags = self.succeed("pkg-config", "--cflags", "--libs", "rueda", env=environment).split()
        self.succeed("g++", "-std=c++20", self.EXAMPLE, "-o", os.path.join(self.dir, "example"), *flags)

    def test_a_program_is_built_by_find_package(self):
        with open(os.path.join(self.dir, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(f"""
                cmake_minimum_required(VERSION 3.25)
                project(user LANGUAGES CXX)
                set(CMAKE_CXX_STANDARD 20)
                find_package(rueda 0.1 CONFIG REQUIRED)
                add_executable(example {self.EXAMPLE})
                target_link_libraries(example PRIVATE rueda::rueda)
                """))
        build = os.path.join(self.dir, "build")
        self.succeed("cmake", "-S", self.dir, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.succeed("cmake", "--build", build)

    def test_the_python_package_is_installed(self):
        for module in ("_core/_context.py", "torch/_optimizer.py", "elastic/_sampler.py", "_tensorflow/_ops.py", "rueda/keras/callbacks.py",
                       "jax/_primitives.py"):
            self.find(module)


class Kubernetes(unittest.TestCase):
    def load(self, name):
        return yaml.safe_load(read("deploy", "kubernetes", name))

    @needs_tool("yamllint", "yamllint")
    def test_yamllint_finds_nothing(self):
        result = run("yamllint", "--strict", "-d", YAMLLINT_RULES, DEPLOY)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    @needs_yaml
    def test_kustomization_names_every_manifest(self):
        manifests = sorted(set(os.listdir(KUBERNETES)) - {"kustomization.yaml"})
        self.assertEqual(sorted(self.load("kustomization.yaml")["resources"]), manifests)
        for name in manifests:
            manifest = self.load(name)
            self.assertTrue(manifest["apiVersion"] and manifest["kind"])
            if manifest["kind"] != "Namespace":
                self.assertEqual(manifest["metadata"]["namespace"], "rueda")

    @needs_yaml
    def test_labels_ports_and_volumes_fit_together(self):
        daemonset, service = self.load("daemonset.yaml"), self.load("service.yaml")
        template = daemonset["spec"]["template"]
        labels = template["metadata"]["labels"]
        self.assertEqual(daemonset["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(service["spec"]["selector"], labels)
        self.assertEqual(service["spec"]["clusterIP"], "None")

        (container,) = template["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        self.assertEqual(ports, {port["targetPort"]: port["port"] for port in service["spec"]["ports"]})
        configuration = self.load("configmap.yaml")["data"]["ruedad.toml"]
        for name, port in ports.items():
            self.assertIn(f"{name}-port = {port}\n", configuration)
            self.assertRegex(Docker.TEXT, rf"EXPOSE .*\b{port}\b")
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            self.assertIn(container[probe]["httpGet"]["port"], ports)

        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, set(volumes))
        self.assertEqual(volumes["config"]["configMap"]["name"],
                         self.load("configmap.yaml")["metadata"]["name"])
        self.assertEqual(volumes["socket"]["hostPath"]["path"], "/run/rueda")

    @needs_yaml
    def test_the_containers_are_confined(self):
        pod = self.load("daemonset.yaml")["spec"]["template"]["spec"]
        self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
        for container in pod["containers"] + pod["initContainers"]:
            self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"])
            self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
            self.assertEqual(container["securityContext"]["capabilities"]["drop"], ["ALL"])

    @needs_yaml
    def test_the_daemon_is_not_root_and_owns_its_folder(self):
        pod = self.load("daemonset.yaml")["spec"]["template"]["spec"]
        (container,), (first,) = pod["containers"], pod["initContainers"]
        security = container["securityContext"]
        self.assertTrue(security["runAsNonRoot"])
        self.assertNotIn("add", security["capabilities"])
        owner = f"{security['runAsUser']}:{security['runAsGroup']}"
        self.assertIn(f"\nUSER {owner}\n", Docker.TEXT)
        mounted = next(mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "socket")
        self.assertEqual(first["command"], ["/bin/chown", owner, mounted])
        self.assertEqual(first["securityContext"]["capabilities"]["add"], ["CHOWN"])
        self.assertEqual(first["image"], container["image"])

    @needs_yaml
    def test_a_namespace_has_the_folder_of_its_own_socket_alone(self):
        folder = os.path.join("deploy", "kubernetes-namespaces")
        overlay = yaml.safe_load(read(folder, "kustomization.yaml"))
        self.assertEqual(overlay["resources"], ["../kubernetes", "team-a.yaml"])
        added = {}
        for change in yaml.safe_load(overlay["patches"][0]["patch"]):
            self.assertEqual(change["op"], "add")
            added.setdefault(change["path"], []).append(change["value"])
        objects = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(read(folder, "team-a.yaml"))}
        daemon = self.load("daemonset.yaml")["spec"]["template"]["spec"]
        self.assertIn('"--socket", "/run/rueda/ruedad.sock"]', Docker.TEXT)
        (named,) = added["/spec/template/spec/containers/0/args/-"]
        path, principal = named.removeprefix("--socket=").rsplit("=", 1)
        (chown,), (mkdir,) = daemon["initContainers"], added["/spec/template/spec/initContainers/-"]
        self.assertEqual(mkdir["command"][-1], os.path.dirname(path))
        self.assertEqual(mkdir["image"], chown["image"])
        for key in ("runAsUser", "runAsGroup"):
            self.assertEqual(mkdir["securityContext"][key], daemon["containers"][0]["securityContext"][key])

        volume = objects["PersistentVolume", f"rueda-{principal}"]["spec"]
        self.assertEqual(volume["hostPath"]["path"], os.path.dirname(path))
        claim = objects["PersistentVolumeClaim", volume["claimRef"]["name"]]
        self.assertEqual(claim["metadata"]["namespace"], volume["claimRef"]["namespace"])
        self.assertEqual(claim["spec"]["volumeName"], f"rueda-{principal}")
        pod = objects["Pod", "training"]
        self.assertEqual(pod["metadata"]["namespace"], principal)
        (mount,) = pod["spec"]["containers"][0]["volumeMounts"]
        self.assertEqual(os.path.join(mount["mountPath"], os.path.basename(path)), "/run/rueda/ruedad.sock")
        self.assertTrue(mount["readOnly"])
        self.assertEqual(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"])

    @needs_yaml
    def test_the_network_policy_is_for_the_daemons_and_all_of_their_ports(self):
        policy, template = self.load("networkpolicy.yaml")["spec"], self.load("daemonset.yaml")["spec"]["template"]
        labels = template["metadata"]["labels"]
        self.assertEqual(policy["podSelector"]["matchLabels"], labels)
        self.assertEqual(policy["policyTypes"], ["Ingress"])
        (container,) = template["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        between, monitoring = policy["ingress"]
        self.assertEqual([port["port"] for port in between["ports"]], [ports["control"], ports["data"]])
        self.assertEqual([port["port"] for port in monitoring["ports"]], [ports["http"]])
        self.assertEqual(between["from"][0]["podSelector"]["matchLabels"], labels)
        nodes = re.findall(r"=(10\.[\d.]+):28400", self.load("configmap.yaml")["data"]["ruedad.toml"])
        network = ipaddress.ip_network(between["from"][1]["ipBlock"]["cidr"])
        for node in nodes:
            self.assertIn(ipaddress.ip_address(node), network)
        if template["spec"]["hostNetwork"]:  # then it must not be taken for more than it is
            self.assertIn("(hostNetwork)", read("deploy", "kubernetes", "networkpolicy.yaml"))


class Prometheus(unittest.TestCase):
    @needs_tool("promtool", "prometheus")
    def test_the_scrape_configuration_is_valid(self):
        result = run("promtool", "check", "config", "--syntax-only", os.path.join(DEPLOY, "prometheus", "scrape.yaml"))
        self.assertEqual(result.returncode, 0, result.stdout)


EXPOSITION = r"""# TYPE rueda_build_info gauge
rueda_build_info{node="v\"0\\",simd="AVX2",version="0.1.0"} 1
rueda_operations_total{job="a",collective="allreduce",result="ok"} 10
rueda_operations_total{job="b",collective="barrier",result="ok"} 2
rueda_operations_total{job="a",collective="allreduce",result="error"} 1
rueda_tensors_total{job="a"} 40
rueda_reduced_bytes_total{job="a"} 1.5e+06
rueda_copied_in_bytes_total{job="a"} 999
rueda_copied_out_bytes_total{job="a"} 0
rueda_network_sent_bytes_total{peer="v1",transport="tcp"} 3000000000
rueda_network_received_bytes_total{peer="v1",transport="tcp"} 1000
"""


class MetricsHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(EXPOSITION.encode())

    def log_message(self, *_):
        pass


class Quickstart(unittest.TestCase):
    """Tests what quickstart.sh says of wrong arguments and of files that are no wheels, in a copy of the tree's scripts."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        shutil.copytree(DEPLOY, os.path.join(self.root, "deploy"))
        with open(os.path.join(self.root, "deploy", "packages.sh"), "w", encoding="utf-8") as stub:
            stub.write("#!/bin/bash\n")

    def quickstart(self, *arguments):
        result = run("/bin/bash", os.path.join(self.root, "deploy", "quickstart.sh"), *arguments)
        self.assertNotEqual(result.returncode, 0)
        return result.stdout

    def make_wheel(self, **files):
        path = os.path.join(self.root, f"rueda-0.1.0-py3-none-linux_{os.uname().machine}.whl")
        with zipfile.ZipFile(path, "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name.replace("__", "/"), text)
        return path

    def test_unknown_arguments_are_named(self):
        self.assertIn("unknown argument '--fast'; there are only --wheel FILE and --build", self.quickstart("--fast"))
        self.assertIn("--wheel wants a file", self.quickstart("--wheel"))

    def test_without_a_wheel_it_builds(self):
        for has_dist in (False, True):
            if has_dist:
                os.mkdir(os.path.join(self.root, "dist"))
            said = self.quickstart()
            self.assertIn("==> configuring build/release", said)
            self.assertIn("this failed: cmake --preset release", said)

    def test_a_wheel_that_is_not_there(self):
        self.assertRegex(self.quickstart("--wheel", "/nowhere/x.whl"), "no file /nowhere/x.whl; pip wheel .* makes one")

    def test_a_wheel_of_something_else(self):
        wheel = self.make_wheel(other__module="")
        self.assertIn("no wheel of the whole of Rueda: rueda/bin/ruedad is not in it", self.quickstart("--wheel", wheel))

    def test_a_wheel_for_another_machine_and_the_one_in_dist_is_taken(self):
        wheel = self.make_wheel(rueda__bin__ruedad="not a program of this machine")
        os.mkdir(os.path.join(self.root, "dist"))
        shutil.move(wheel, os.path.join(self.root, "dist"))
        said = self.quickstart()
        self.assertIn("taking dist/rueda-0.1.0", said)
        self.assertIn("do not run on this machine; --build builds them", said)

    def test_many_wheels_of_many_files(self):
        """grep and head once ended before their input did, and pipefail took that for a failure."""
        wheel = self.make_wheel(rueda__bin__ruedad="not a program of this machine", **{f"rueda__{number}": "" for number in range(2000)})
        dist = os.path.join(self.root, "dist")
        os.mkdir(dist)
        shutil.move(wheel, dist)
        for number in range(2000):
            older = os.path.join(dist, os.path.basename(wheel).replace("0.1.0", f"0.0.{number}"))
            with open(older, "wb"):
                os.utime(older, (0, 0))
        said = self.quickstart()
        self.assertIn("taking dist/rueda-0.1.0", said)
        self.assertIn("do not run on this machine", said)


class MetricsSummary(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), MetricsHandler)
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.address = f"127.0.0.1:{self.server.server_port}"

    def rank(self, script, rank="0", addresses=None):
        with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as file:
            file.write(script)
            file.flush()
            return run("/usr/bin/python3", os.path.join(DEPLOY, "quickstart_rank.py"), file.name, "--flag",
                       env={**os.environ, "RANK": rank, "PYTHONDONTWRITEBYTECODE": "1",
                            "RUEDA_HTTP_ADDRESSES": addresses or self.address})

    def test_summarises_what_a_daemon_says(self):
        self.assertEqual(metrics_summary.fetch(self.address), {
            "node": 'v"0\\', "operations": 12, "failed_operations": 1, "tensors": 40,
            "reduced_bytes": 1500000, "copied_in_bytes": 999, "copied_out_bytes": 0,
            "peers": {"v1": {"sent_bytes": 3000000000, "received_bytes": 1000}}})

    def test_prints_it_for_people(self):
        result = run("/usr/bin/python3", "-B", os.path.join(DEPLOY, "metrics_summary.py"),
                     f"{self.address},{self.address}")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(result.stdout.count("12 operations on 40 tensors, 1.5 MB reduced"), 2)
        self.assertIn("with v1: sent 3.0 GB, received 1.0 kB", result.stdout)

    def test_names_a_daemon_that_does_not_answer(self):
        result = run("/usr/bin/python3", "-B", os.path.join(DEPLOY, "metrics_summary.py"), "127.0.0.1:1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("127.0.0.1:1", result.stdout)

    def test_rank_0_prints_it_after_its_script(self):
        result = self.rank("import sys\nprint('trained', sys.argv[1:], __name__)\nsys.exit(0)\n")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r"^trained \['--flag'\] __main__\nwhat the ring moved.*\n  node v")

    def test_other_ranks_do_not(self):
        self.assertEqual(self.rank("print('trained')\n", rank="1").stdout, "trained\n")

    def test_a_script_that_fails_fails_the_rank(self):
        result = self.rank("import sys\nsys.exit(7)\n")
        self.assertEqual((result.returncode, result.stdout), (7, ""))
        self.assertEqual(self.rank("raise ValueError('no')\n").returncode, 1)


if __name__ == "__main__":
    unittest.main()
