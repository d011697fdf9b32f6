"""Prints, for a shell, the environment in which a program's own JAX collectives run on Rueda: eval "$(python3 -m rueda.jax)"."""

import shlex
import sys

from . import mpi_environment


def main() -> None:
    if len(sys.argv) > 1:
        sys.exit(f"usage: {sys.executable} -m rueda.jax, without arguments; it prints lines for a shell's eval")
    try:
        for name, value in mpi_environment().items():
            print(f"export {name}={shlex.quote(value)}")
    except ImportError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
