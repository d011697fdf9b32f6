"""Installs the Python package as a user does: a wheel of it, by pip, in a virtual environment that sees the packages of another Python."""

import glob
import os
import shutil
import subprocess


def pip(python, *arguments):
    done = subprocess.run([python, "-m", "pip", "--disable-pip-version-check", *arguments], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise AssertionError(f"pip {' '.join(arguments)}:\n{done.stdout}")


def make_environment(python, source, folder):
    """Makes a virtual environment in `folder`, and returns its Python. `python` must have setuptools of its own that makes wheels; what
    else it has can be imported."""
    copy, environment = os.path.join(folder, "copy"), os.path.join(folder, "environment")
    shutil.copytree(os.path.join(source, "client", "python"), copy)  # setuptools leaves a build folder behind
    pip(python, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, copy)
    subprocess.run([python, "-m", "venv", "--without-pip", environment], check=True)
    own = os.path.join(environment, "bin", "python")
    seen = subprocess.run([python, "-c", "import json, sys; print(json.dumps([one for one in sys.path if 'packages' in one]))"],
                          env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
                          capture_output=True, text=True, check=True).stdout
    [site] = glob.glob(os.path.join(environment, "lib", "python3*", "site-packages"))
    with open(os.path.join(site, "seen.pth"), "w", encoding="utf-8") as file:
        file.write("import json, sys; sys.path += json.loads(%r)\n" % seen.strip())
    pip(python, "--python", own, "install", "--no-deps", "--no-index", *glob.glob(os.path.join(folder, "rueda-*.whl")))
    shutil.rmtree(copy)
    return own
